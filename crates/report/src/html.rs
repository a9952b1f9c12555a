//! stub
use latput_model::Summary;
use latput_trial::Results;
/// stub
pub fn html(_r: &Results, _s: &Summary) -> String { String::new() }
