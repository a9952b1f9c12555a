//! The settings that a search chooses from: every combination of the levels of some axes.

use std::collections::BTreeSet;

use latput_units::text::{format_count, is_or_are};
use latput_units::{IntoSet, SeededRng};

/// One factor of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchAxis {
    /// Number of its levels.
    pub levels: usize,
    /// Whether neighbouring levels are alike (a time, a count) or unrelated (a queue discipline).
    pub is_ordered: bool,
    /// The level outside the order, if any: a delay of 0 is not a short delay but leaves moderation
    /// to another mechanism.
    pub apart: Option<usize>,
    /// Whether a change disturbs traffic (MTU, rings, channels) and should be rare.
    pub is_disruptive: bool,
}

impl SearchAxis {
    /// Distance of two levels: 0 for the same, 1 from one end of an ordered axis to the other and
    /// between any two unordered levels.
    pub fn level_distance(&self, a: usize, b: usize) -> f64 {
        let is_apart = [a, b].map(Some).contains(&self.apart);
        match a.abs_diff(b) {
            0 => 0.0,
            _ if !self.is_ordered || is_apart => 1.0,
            steps => steps as f64 / (self.levels - 1) as f64,
        }
    }
}

/// All combinations except the refused ones. The index of a setting counts as in a plan's cross
/// product: the last axis varies fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchSpace {
    axes: Vec<SearchAxis>,
    size: usize,
    refused: BTreeSet<usize>,
}

/// Weight of how often a level was chosen (1 for as often as by chance), against the distance from
/// one end of an axis to the other.
const CROWD: f64 = 0.3;

/// The largest number of combinations. Choosing among more would take longer than a trial.
pub const LARGEST_SPACE: usize = 1_000_000;

/// The reason why a space cannot be searched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// More than [`LARGEST_SPACE`] combinations.
    #[error("the factors have more than {LARGEST_SPACE} combinations: give them fewer values")]
    TooLarge,
    /// Fewer than two settings remain.
    #[error(
        "{refused} of {} {} refused: nothing is left to choose from",
        format_count(*size, "setting"), is_or_are(*refused)
    )]
    Empty {
        /// Number of combinations.
        size: usize,
        /// Number of refused combinations.
        refused: usize,
    },
}

impl SearchSpace {
    /// The combinations of `axes` without the indices in `refused`.
    pub fn new(axes: Vec<SearchAxis>, refused: BTreeSet<usize>) -> Result<Self, SpaceError> {
        let product = axes.iter().try_fold(1_usize, |size, axis| size.checked_mul(axis.levels));
        let size = product.filter(|size| *size <= LARGEST_SPACE).ok_or(SpaceError::TooLarge)?;
        let refused: BTreeSet<usize> = refused.into_iter().filter(|index| *index < size).into_set();
        if size - refused.len() < 2 {
            return Err(SpaceError::Empty { size, refused: refused.len() });
        }
        Ok(Self { axes, size, refused })
    }

    /// The axes, in the plan's order.
    pub fn axes(&self) -> &[SearchAxis] {
        &self.axes
    }

    /// Number of combinations, with the refused ones.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether a setting may be tried.
    pub fn is_allowed(&self, index: usize) -> bool {
        index < self.size && !self.refused.contains(&index)
    }

    /// The settings that may be tried, in order.
    pub fn allowed_settings(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.size).filter(|index| self.is_allowed(*index))
    }

    /// The level on each axis.
    pub fn levels(&self, index: usize) -> Vec<usize> {
        let mut rest = index;
        let mut levels = vec![0; self.axes.len()];
        for (level, axis) in levels.iter_mut().zip(&self.axes).rev() {
            *level = rest % axis.levels;
            rest /= axis.levels;
        }
        levels
    }

    /// The setting with these levels.
    pub fn index(&self, levels: &[usize]) -> usize {
        self.axes.iter().zip(levels).fold(0, |index, (axis, level)| index * axis.levels + level)
    }

    /// Distance of two settings on each axis, see [`SearchAxis::level_distance`].
    pub fn axis_distances(&self, a: &[usize], b: &[usize]) -> impl Iterator<Item = f64> {
        let pairs = self.axes.iter().zip(a.iter().zip(b));
        pairs.map(|(axis, (a, b))| axis.level_distance(*a, *b))
    }

    /// The allowed settings that differ from `index` by one step of one axis (any other level of an
    /// unordered one).
    pub fn neighbours(&self, index: usize) -> Vec<usize> {
        let levels = self.levels(index);
        let mut found = Vec::new();
        for (at, axis) in self.axes.iter().enumerate() {
            for level in 0..axis.levels {
                let is_near = if axis.is_ordered {
                    level.abs_diff(levels[at]) == 1
                } else {
                    level != levels[at]
                };
                if is_near {
                    let mut near = levels.clone();
                    near[at] = level;
                    found.push(self.index(&near));
                }
            }
        }
        found.retain(|index| self.is_allowed(*index));
        found
    }

    /// `count` settings beside `first` that cover the space and the levels of every axis. Each is
    /// the one of some hundred drawn settings that is farthest from those already chosen and has
    /// their rarest levels.
    pub fn choose_spread(&self, first: usize, count: usize, rng: &mut SeededRng) -> Vec<usize> {
        const DRAWN: usize = 300;
        let mut chosen = vec![self.levels(first)];
        let pool: Vec<usize> = self.sample_settings(DRAWN, rng);
        for _ in 0..count {
            let distance = |levels: &[usize]| {
                let to = |other: &Vec<usize>| {
                    self.axis_distances(levels, other).map(|gap| gap * gap).sum::<f64>()
                };
                chosen.iter().map(to).fold(f64::INFINITY, f64::min)
            };
            // How often the levels were chosen, over how often chance would choose them.
            let crowd = |levels: &[usize]| {
                let of_axis = |(at, level): (usize, &usize)| {
                    let uses = chosen.iter().filter(|other| other[at] == *level).count();
                    (uses * self.axes[at].levels) as f64 / chosen.len() as f64
                };
                levels.iter().enumerate().map(of_axis).sum::<f64>()
            };
            let best = pool
                .iter()
                .map(|index| self.levels(*index))
                .filter(|levels| !chosen.contains(levels))
                .map(|levels| (distance(&levels) - CROWD * crowd(&levels), levels))
                .max_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, levels)) = best else { break };
            chosen.push(levels);
        }
        chosen[1..].iter().map(|levels| self.index(levels)).collect()
    }

    /// Up to `count` different allowed settings, drawn at random; all of them if there are no more.
    pub fn sample_settings(&self, count: usize, rng: &mut SeededRng) -> Vec<usize> {
        let left = self.size - self.refused.len();
        if left <= count {
            return self.allowed_settings().collect();
        }
        let mut drawn = BTreeSet::new();
        while drawn.len() < count {
            let index = rng.next_below(self.size);
            if self.is_allowed(index) {
                drawn.insert(index);
            }
        }
        drawn.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_count_like_a_cross_product() {
        let space = make_space(&[2, 3, 4]);
        assert_eq!(space.size(), 24);
        assert_eq!(space.levels(0), [0, 0, 0]);
        assert_eq!(space.levels(5), [0, 1, 1]);
        for index in 0..24 {
            assert_eq!(space.index(&space.levels(index)), index);
        }
    }

    #[test]
    fn neighbours_are_one_step_away_and_allowed() {
        assert_eq!(make_space(&[3, 3]).neighbours(4), [1, 7, 3, 5]);
        assert_eq!(make_space(&[3, 3]).neighbours(0), [3, 1]);
        let unordered =
            SearchAxis { levels: 3, is_ordered: false, apart: None, is_disruptive: false };
        let space = SearchSpace::new(vec![unordered], BTreeSet::from([1])).unwrap();
        assert_eq!(space.neighbours(0), [2]);
    }

    #[test]
    fn spread_start_reaches_unseen_corners() {
        let space = make_space(&[5, 5]);
        let mut chosen = space.choose_spread(0, 3, &mut SeededRng::from_seed(1));
        chosen.sort_unstable();
        assert_eq!(chosen, [8, 16, 24]);
        // No setting twice, however many are asked for.
        let all: BTreeSet<usize> =
            space.choose_spread(0, 100, &mut SeededRng::from_seed(1)).into_iter().collect();
        assert_eq!(all.len(), 24);
    }

    #[test]
    fn space_without_a_choice_is_refused() {
        let refused: BTreeSet<usize> = (1..9).collect();
        let error = SearchSpace::new(make_axes(&[3, 3]), refused).unwrap_err();
        assert_eq!(error, SpaceError::Empty { size: 9, refused: 8 });
        assert_eq!(
            SearchSpace::new(make_axes(&[usize::MAX, 2]), BTreeSet::new()).unwrap_err(),
            SpaceError::TooLarge
        );
        assert!(SearchSpace::new(make_axes(&[2, 0]), BTreeSet::new()).is_err());
    }

    #[test]
    fn sample_has_distinct_settings_asked_for() {
        let space = SearchSpace::new(make_axes(&[100]), (50..60).collect()).unwrap();
        let sample = space.sample_settings(10, &mut SeededRng::from_seed(1));
        let different: BTreeSet<usize> = sample.iter().copied().collect();
        assert_eq!((sample.len(), different.len()), (10, 10));
        assert!(sample.iter().all(|index| space.is_allowed(*index)), "{sample:?}");
        let all: Vec<usize> = (0..50).chain(60..100).collect();
        assert_eq!(space.sample_settings(95, &mut SeededRng::from_seed(1)), all);
        assert!(!space.is_allowed(100) && !space.is_allowed(50) && space.is_allowed(99));
    }

    #[test]
    fn level_has_no_distance_from_itself() {
        let axis =
            |is_ordered| SearchAxis { levels: 5, is_ordered, apart: Some(0), is_disruptive: false };
        let gaps = |is_ordered| {
            [(2, 2), (0, 0), (1, 3), (0, 1)].map(|(a, b)| axis(is_ordered).level_distance(a, b))
        };
        assert_eq!(gaps(true).map(Some), [0.0, 0.0, 0.5, 1.0].map(Some));
        assert_eq!(gaps(false).map(Some), [0.0, 0.0, 1.0, 1.0].map(Some));
    }

    fn make_axes(levels: &[usize]) -> Vec<SearchAxis> {
        levels
            .iter()
            .map(|&levels| SearchAxis {
                levels,
                is_ordered: true,
                apart: None,
                is_disruptive: false,
            })
            .collect()
    }

    fn make_space(levels: &[usize]) -> SearchSpace {
        SearchSpace::new(make_axes(levels), BTreeSet::new()).unwrap()
    }
}
