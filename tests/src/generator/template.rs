//! Owns the template language for random commands. Never knows a command.

use crate::Random;

/// The source of the words of a template.
pub trait Template {
    fn random(&mut self) -> &mut Random;

    /// Adds a word of this kind, or several. Text that names no kind is added unchanged.
    fn word(&mut self, kind: &str, words: &mut Vec<Vec<u8>>);
}

/// Makes a command from a template. Parts are separated by spaces:
///
/// | part | stands for |
/// | --- | --- |
/// | `a` | what [`Template::word`] makes of it |
/// | `?a` | one `a` or none |
/// | `*a` | up to four |
/// | `*9:a,b` | one to nine times both |
/// | <code>{a\|b_c\|}</code> | one of the alternatives: `a`, `b` and `c`, or nothing |
pub fn fill(from: &mut impl Template, template: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    for part in template.split(' ') {
        if let Some(choices) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            let choices: Vec<&str> = choices.split('|').collect();
            let choice = from.random().of(&choices);
            choice.split('_').filter(|kind| !kind.is_empty()).for_each(|kind| from.word(kind, &mut words));
        } else if let Some(kind) = part.strip_prefix('?') {
            if from.random().one_in(3) {
                from.word(kind, &mut words);
            }
        } else if let Some((most, kinds)) = part.strip_prefix('*').and_then(|part| part.split_once(':')) {
            for _ in 0..=from.random().below(most.parse().expect("a number")) {
                kinds.split(',').for_each(|kind| from.word(kind, &mut words));
            }
        } else if let Some(kind) = part.strip_prefix('*').filter(|kind| !kind.is_empty()) {
            for _ in 0..from.random().below(5) {
                from.word(kind, &mut words);
            }
        } else {
            from.word(part, &mut words);
        }
    }
    words
}
