//! A walk through the kernel's type information (BTF), far enough to check a tracepoint's arguments and to find a
//! structure's members.
//!
//! Format: Documentation/bpf/btf.rst.

/// Kinds of types, and how many bytes follow the common twelve.
const INT: u32 = 1;
const PTR: u32 = 2;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
const MAGIC: u16 = 0xeb9f;
/// Length of `struct btf_type`.
const TYPE: usize = 12;
/// Length of `struct btf_member`.
const MEMBER: usize = 12;
/// Parts without a name within each other; the kernel's have four at most.
const DEEPEST_PART: u32 = 16;

/// Checks that tracepoint `name` passes `(void *, struct FIRST *, int, int)`. The error says what it
/// passes instead, or why that cannot be told.
pub(super) fn check_tracepoint(bytes: &[u8], name: &str, first: &str) -> Result<(), String> {
    let types = Types::read(bytes).ok_or("the type information is damaged")?;
    let (_, parameters) = types.tracepoint(name)?;
    let [_, object, work, budget] = parameters[..] else {
        return Err(format!(
            "the tracepoint {name} has {} arguments and not 3",
            parameters.len().saturating_sub(1)
        ));
    };
    types.check_first_parameter(object, name, first)?;
    if !types.is_int(work) || !types.is_int(budget) {
        return Err(format!("the second or third argument of {name} is no int"));
    }
    Ok(())
}

/// Checks that the arguments of tracepoint `name` with these numbers, from 0 on, are pointers to these
/// structures.
pub(super) fn check_pointers(
    bytes: &[u8],
    name: &str,
    wanted: &[(usize, &str)],
) -> Result<(), String> {
    let types = Types::read(bytes).ok_or("the type information is damaged")?;
    types.check_pointers(name, wanted).map(drop)
}

/// Needs of a program that reads a structure which a tracepoint passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypedTracepoint<const N: usize> {
    /// The number of the tracepoint's type, by which such a program is attached.
    pub(super) number: u32,
    /// Where the members begin, in bytes.
    pub(super) offsets: [i16; N],
}

/// Finds tracepoint `name`, whose first argument is a `struct FIRST *`, and members of four bytes of a structure.
pub(super) fn typed_tracepoint<const N: usize>(
    bytes: &[u8],
    (name, first): (&str, &str),
    (object, members): (&str, [&str; N]),
) -> Result<TypedTracepoint<N>, String> {
    let types = Types::read(bytes).ok_or("the type information is damaged")?;
    let (number, parameters) = types.tracepoint(name)?;
    types.check_first_parameter(parameters.get(1).copied().unwrap_or_default(), name, first)?;
    let is_it = |found: &Type| found.kind == STRUCT && types.name(found) == object.as_bytes();
    let found = types.all().find(is_it).ok_or_else(|| format!("it has no `struct {object}`"))?;
    let mut offsets = [0; N];
    for (offset, member) in offsets.iter_mut().zip(members) {
        *offset = types
            .find_int_member(&found, member)
            .ok_or_else(|| format!("`struct {object}` has no member {member} of 4 bytes"))?;
    }
    Ok(TypedTracepoint { number, offsets })
}

/// A structure that each CPU has as a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PerCpuStruct {
    /// The number of its type.
    pub(super) number: u32,
    /// Where it is among the variables that each CPU has, in bytes.
    pub(super) offset: u32,
}

/// Where a member of a structure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Its first bit.
    pub(super) at: u32,
    /// Its length in bits.
    pub(super) bits: u32,
}

#[derive(Clone, Copy, Debug)]
struct Type {
    name: u32,
    kind: u32,
    /// How many members or parameters follow.
    count: usize,
    /// Whether some members of a structure are bit fields.
    has_bit_fields: bool,
    /// Size in bytes, or the number of the type it is made of.
    target: u32,
    /// Where what follows begins.
    rest: usize,
}

/// The types of a kernel.
pub(super) struct Types<'a> {
    bytes: &'a [u8],
    names: &'a [u8],
    /// Where each type begins; number 1 is first.
    starts: Vec<usize>,
}

impl<'a> Types<'a> {
    /// `None` where they are damaged.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let magic = bytes.first_chunk::<2>()?;
        if u16::from_ne_bytes(*magic) != MAGIC {
            return None;
        }
        let field = |at: usize| u32_at(bytes, at).map(|value| value as usize);
        let header = field(4)?;
        let section = |start: usize, length: usize| {
            let start = header.checked_add(start)?;
            bytes.get(start..start.checked_add(length)?)
        };
        let types = section(field(8)?, field(12)?)?;
        let names = section(field(16)?, field(20)?)?;
        let mut starts = Vec::new();
        let mut at = 0;
        while at < types.len() {
            starts.push(at);
            at = end_of_type(&type_at(types, at)?)?;
        }
        (at == types.len()).then_some(Self { bytes: types, names, starts })
    }

    fn all(&self) -> impl Iterator<Item = Type> {
        self.starts.iter().filter_map(|&start| type_at(self.bytes, start))
    }

    /// Type 0 is void and described nowhere.
    fn get(&self, number: u32) -> Option<Type> {
        let idx = (number as usize).checked_sub(1)?;
        type_at(self.bytes, *self.starts.get(idx)?)
    }

    fn name(&self, found: &Type) -> &[u8] {
        self.text(found.name)
    }

    fn text(&self, at: u32) -> &[u8] {
        let text = self.names.get(at as usize..).unwrap_or(&[]);
        text.split(|&byte| byte == 0).next().unwrap_or(&[])
    }

    /// The number of a tracepoint's type, and those of the parameter types of its function, the hidden first one among them.
    fn tracepoint(&self, name: &str) -> Result<(u32, Vec<u32>), String> {
        let wanted = format!("btf_trace_{name}");
        let is_it = |found: &Type| found.kind == TYPEDEF && self.name(found) == wanted.as_bytes();
        let (number, alias) = (1..)
            .zip(self.all())
            .find(|(_, found)| is_it(found))
            .ok_or_else(|| format!("it has no tracepoint {name}"))?;
        let function = self
            .get(alias.target)
            .filter(|pointer| pointer.kind == PTR)
            .and_then(|pointer| self.get(pointer.target))
            .filter(|function| function.kind == FUNC_PROTO)
            .ok_or_else(|| format!("the tracepoint {name} is no function"))?;
        Ok((number, self.parameters(&function)))
    }

    /// The number of a tracepoint's type, after a check that arguments with these numbers are pointers to these structures.
    pub(super) fn check_pointers(
        &self,
        name: &str,
        wanted: &[(usize, &str)],
    ) -> Result<u32, String> {
        let (tracepoint, parameters) = self.tracepoint(name)?;
        for (idx, object) in wanted {
            if !parameters.get(idx + 1).is_some_and(|&it| self.is_pointer_to(it, object)) {
                return Err(format!("argument {idx} of {name} is no `struct {object} *`"));
            }
        }
        Ok(tracepoint)
    }

    /// Where a member begins, in bytes; `path` leads through structures: `nd_net.net`.
    pub(super) fn place(&self, structure: &str, path: &str) -> Result<i16, String> {
        let missing = || format!("`struct {structure}` has no {path}");
        let (_, mut object) = self.find(STRUCT, structure)?;
        let mut bits = 0_u32;
        for name in path.split('.') {
            let (at, target) = self.find_member(&object, name, 0).ok_or_else(missing)?;
            bits = bits.checked_add(at).ok_or_else(missing)?;
            object = self.strip(target).ok_or_else(missing)?;
        }
        i16::try_from(bits / 8)
            .map_err(|_| format!("{path} is too far within `struct {structure}`"))
    }

    /// The first bit and the type of a member, which may be in a part without a name.
    fn find_member(&self, object: &Type, name: &str, depth: u32) -> Option<(u32, u32)> {
        if depth > DEEPEST_PART {
            return None;
        }
        let field = |at: usize| u32_at(self.bytes, at);
        (0..object.count).find_map(|idx| {
            let start = object.rest + idx * MEMBER;
            let (text, target, place) = (field(start)?, field(start + 4)?, field(start + 8)?);
            let at = if object.has_bit_fields { place & 0xff_ffff } else { place };
            if self.text(text) == name.as_bytes() {
                return Some((at, target));
            }
            let is_part = |it: &Type| text == 0 && matches!(it.kind, STRUCT | UNION);
            let part = self.get(target).filter(is_part)?;
            let (inner, found) = self.find_member(&part, name, depth + 1)?;
            Some((at.checked_add(inner)?, found))
        })
    }

    /// Checks that the type of tracepoint `name`'s first argument is a pointer to structure `wanted`.
    fn check_first_parameter(&self, number: u32, name: &str, wanted: &str) -> Result<(), String> {
        if self.is_pointer_to(number, wanted) {
            return Ok(());
        }
        Err(format!("the first argument of {name} is no `struct {wanted} *`"))
    }

    /// Where the description of a structure's member begins.
    fn start_of_member(&self, object: &Type, name: &str) -> Option<usize> {
        let named = |&start: &usize| {
            u32_at(self.bytes, start).is_some_and(|at| self.text(at) == name.as_bytes())
        };
        (0..object.count).map(|idx| object.rest + idx * MEMBER).find(named)
    }

    /// Where a structure's member of four bytes begins, in bytes.
    fn find_int_member(&self, object: &Type, name: &str) -> Option<i16> {
        let field = |at: usize| u32_at(self.bytes, at);
        let start = self.start_of_member(object, name)?;
        let is_word =
            self.strip(field(start + 4)?).is_some_and(|it| it.kind == INT && it.target == 4);
        // The upper bits, which a structure with bit fields has, are the width of one.
        let bits = field(start + 8)?;
        (is_word && bits % 8 == 0).then(|| i16::try_from(bits / 8).ok()).flatten()
    }

    /// The number of the structure of this name.
    pub(super) fn structure(&self, name: &str) -> Result<u32, String> {
        self.find(STRUCT, name).map(|(number, _)| number)
    }

    /// The number of the function of this name.
    pub(super) fn function(&self, name: &str) -> Result<u32, String> {
        self.find(FUNC, name).map(|(number, _)| number)
    }

    /// How many arguments the function of this name has.
    pub(super) fn count_arguments(&self, name: &str) -> Result<usize, String> {
        let (_, found) = self.find(FUNC, name)?;
        let function = self.get(found.target).filter(|it| it.kind == FUNC_PROTO);
        function.map(|it| it.count).ok_or_else(|| format!("`{name}` has no arguments"))
    }

    fn find(&self, kind: u32, name: &str) -> Result<(u32, Type), String> {
        let is_it = |found: &Type| found.kind == kind && self.name(found) == name.as_bytes();
        let mut numbered = (1..).zip(self.all());
        numbered.find(|(_, found)| is_it(found)).ok_or_else(|| format!("it has no `{name}`"))
    }

    /// The structure that each CPU has as the variable of this name.
    pub(super) fn per_cpu_struct(&self, name: &str) -> Result<PerCpuStruct, String> {
        let (variable, Type { target, .. }) = self.find(VARIABLE, name)?;
        let (_, section) = self.find(SECTION, ".data..percpu")?;
        let field = |at: usize| u32_at(self.bytes, at);
        let offset = (0..section.count)
            .map(|idx| section.rest + idx * MEMBER)
            .find(|&start| field(start) == Some(variable))
            .and_then(|start| field(start + 4))
            .ok_or_else(|| format!("`{name}` is not a variable of each CPU"))?;
        let is_structure = self.get(target).is_some_and(|it| it.kind == STRUCT);
        if !is_structure {
            return Err(format!("`{name}` is no structure"));
        }
        Ok(PerCpuStruct { number: target, offset })
    }

    /// Where a structure's member is.
    pub(super) fn member(&self, structure: u32, name: &str) -> Option<Member> {
        let object = self.get(structure)?;
        let field = |at: usize| u32_at(self.bytes, at);
        let start = self.start_of_member(&object, name)?;
        let place = field(start + 8)?;
        let (at, width) =
            if object.has_bit_fields { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
        let found = self.strip(field(start + 4)?)?;
        let size = match found.kind {
            INT | STRUCT => found.target,
            PTR => 8,
            _ => return None,
        };
        Some(Member { at, bits: if width > 0 { width } else { size.checked_mul(8)? } })
    }

    /// The numbers of a function's parameter types.
    fn parameters(&self, function: &Type) -> Vec<u32> {
        (0..function.count)
            .filter_map(|idx| u32_at(self.bytes, function.rest + idx * 8 + 4))
            .collect()
    }

    /// A type without its names and qualifiers.
    fn strip(&self, number: u32) -> Option<Type> {
        let mut found = self.get(number)?;
        // Damaged data may go round in circles.
        for _ in 0..32 {
            if !matches!(found.kind, TYPEDEF | VOLATILE | CONST) {
                return Some(found);
            }
            found = self.get(found.target)?;
        }
        None
    }

    fn is_pointer_to(&self, number: u32, name: &str) -> bool {
        self.strip(number)
            .filter(|pointer| pointer.kind == PTR)
            .and_then(|pointer| self.strip(pointer.target))
            .is_some_and(|target| target.kind == STRUCT && self.name(&target) == name.as_bytes())
    }

    fn is_int(&self, number: u32) -> bool {
        self.strip(number).is_some_and(|found| found.kind == INT && found.target == 4)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_ne_bytes(*word))
}

fn type_at(types: &[u8], at: usize) -> Option<Type> {
    let info = u32_at(types, at + 4)?;
    Some(Type {
        name: u32_at(types, at)?,
        kind: info >> 24 & 0x1f,
        count: (info & 0xffff) as usize,
        has_bit_fields: info >> 31 != 0,
        target: u32_at(types, at + 8)?,
        rest: at + TYPE,
    })
}

/// Where the next type begins; `None` for a kind that this kernel's format does not have yet.
fn end_of_type(found: &Type) -> Option<usize> {
    let rest = match found.kind {
        PTR | 7..=11 | FUNC | 16 | 18 => 0, // forward, aliases, qualifiers, function, float, type tag
        INT | VARIABLE | 17 => 4,           // declaration tag
        3 => 12,                            // array
        STRUCT | UNION | SECTION | 19 => found.count * MEMBER, // 64-bit enumeration
        6 | FUNC_PROTO => found.count * 8,  // enumeration
        _ => return None,
    };
    Some(found.rest + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_tracepoint_is_accepted() {
        check("btf_trace_napi_poll", "napi_struct", 4, &[0, 3, 4, 4], None);
    }

    #[test]
    fn other_arguments_are_refused_by_name() {
        check("btf_trace_other", "napi_struct", 4, &[0, 3, 4, 4], Some("has no tracepoint"));
        check("btf_trace_napi_poll", "net_device", 4, &[0, 3, 4, 4], Some("first argument"));
        check("btf_trace_napi_poll", "napi_struct", 8, &[0, 3, 4, 4], Some("no int"));
        check("btf_trace_napi_poll", "napi_struct", 4, &[0, 3, 4], Some("2 arguments"));
        check("btf_trace_napi_poll", "napi_struct", 4, &[0, 4, 3, 4], Some("first argument"));
        check("btf_trace_napi_poll", "napi_struct", 4, &[0, 99, 4, 4], Some("first argument"));
    }

    #[test]
    fn btf_members_are_found_by_name() {
        let bytes = build("btf_trace_tcp_probe", "sock", 4, &[0, 3, 4]);
        let find = |first, object, member| {
            typed_tracepoint(&bytes, ("tcp_probe", first), (object, [member]))
        };
        let found = TypedTracepoint { number: 7, offsets: [12] };
        assert_eq!(find("sock", "sock", "srtt_us"), Ok(found));
        assert!(find("skb", "sock", "srtt_us").unwrap_err().contains("first argument"));
        assert!(find("sock", "tcp_sock", "srtt_us").unwrap_err().contains("no `struct tcp_sock`"));
        assert!(find("sock", "sock", "lost").unwrap_err().contains("no member lost"));
        // A bit of a field, and a pointer.
        assert!(find("sock", "sock", "flags").unwrap_err().contains("no member flags"));
        assert!(find("sock", "sock", "next").unwrap_err().contains("no member next"));
    }

    #[test]
    fn truncated_or_damaged_information_never_panics() {
        let whole = build("btf_trace_napi_poll", "napi_struct", 4, &[0, 3, 4, 4]);
        for end in 0..whole.len() {
            assert!(check_tracepoint(&whole[..end], "napi_poll", "napi_struct").is_err(), "{end}");
            assert!(find_all(&whole[..end]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _ = check_tracepoint(&damaged, "napi_poll", "napi_struct");
                let _ = find_all(&damaged);
            }
        }
    }

    #[test]
    fn members_are_found_in_parts_without_names() {
        let bytes = build("btf_trace_x", "napi_struct", 4, &[0, 3]);
        let types = Types::read(&bytes).unwrap();
        assert_eq!(types.place("outer", "inner"), Ok(8));
        assert_eq!(types.place("outer", "nested.srtt_us"), Ok(16 + 12));
        for path in ["lost", "nested.lost", "inner.srtt_us"] {
            assert!(types.place("outer", path).unwrap_err().contains("has no"), "{path}");
        }
        assert!(types.place("lost", "inner").is_err());
        assert_eq!(types.check_pointers("x", &[(0, "napi_struct")]), Ok(7));
        assert!(types.check_pointers("x", &[(1, "napi_struct")]).is_err());
    }

    fn find_all(bytes: &[u8]) -> Result<TypedTracepoint<2>, String> {
        let members = ("napi_struct", ["srtt_us", "flags"]);
        typed_tracepoint(bytes, ("napi_poll", "napi_struct"), members)
    }

    /// 1 = pointer to a struct, 2 = that struct, with a member of three kinds, 3 = const alias of 1, 4 = int, 5 = function,
    /// 6 = pointer to it, 7 = the alias that names the tracepoint, 8 = a part without a name, 9 = a struct of it and 2.
    fn build(tracepoint: &str, object: &str, int_size: u32, parameters: &[u32]) -> Vec<u8> {
        let mut names = vec![0];
        let mut name = |text: &str| {
            let at = u32::try_from(names.len()).unwrap();
            names.extend_from_slice(text.as_bytes());
            names.push(0);
            at
        };
        let (object, tracepoint, int) = (name(object), name(tracepoint), name("int"));
        let (word, bit, pointer) = (name("srtt_us"), name("flags"), name("next"));
        let (inner, outer, nested) = (name("inner"), name("outer"), name("nested"));
        let count = u32::try_from(parameters.len()).unwrap();
        let mut words = Vec::new();
        let mut add = |name: u32, kind: u32, count: u32, target: u32, rest: &[u32]| {
            words.extend([name, kind << 24 | count, target]);
            words.extend(rest);
        };
        add(0, PTR, 0, 2, &[]);
        let members = [word, 4, 12 * 8, bit, 4, (1 << 24) | (16 * 8), pointer, 1, 0];
        add(object, STRUCT, 3, 24, &members);
        add(0, CONST, 0, 1, &[]);
        add(int, INT, 0, int_size, &[32]);
        let pairs: Vec<u32> = parameters.iter().flat_map(|&number| [0, number]).collect();
        add(0, FUNC_PROTO, count, 0, &pairs);
        add(0, PTR, 0, 5, &[]);
        add(tracepoint, TYPEDEF, 0, 6, &[]);
        add(0, UNION, 1, 4, &[inner, 4, 0]);
        add(outer, STRUCT, 2, 40, &[0, 8, 8 * 8, nested, 2, 16 * 8]);
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let lengths = [24, 0, types.len(), types.len(), names.len()];
        bytes.extend(
            lengths.iter().flat_map(|&length| u32::try_from(length).unwrap().to_ne_bytes()),
        );
        [bytes, types, names].concat()
    }

    #[track_caller]
    fn check(
        tracepoint: &str,
        object: &str,
        int_size: u32,
        parameters: &[u32],
        refusal: Option<&str>,
    ) {
        let bytes = build(tracepoint, object, int_size, parameters);
        match (check_tracepoint(&bytes, "napi_poll", "napi_struct"), refusal) {
            (Ok(()), None) => {}
            (Err(error), Some(why)) => assert!(error.contains(why), "{error}"),
            (found, _) => panic!("{found:?}, expected {refusal:?}"),
        }
    }
}
