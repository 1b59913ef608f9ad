//! Functions that stand for operators and casts in plans. No client can call them, and no registry has them: on its way to another
//! process a plan has their words.

use super::any_element::IsAnyOf;
use super::casts::TextCast;
use super::itself::sort_key;
use super::large::Concatenation;
use super::parts::LikeInParts;
use super::{moments, patterns, value_or_null};
use datafusion::logical_expr::ScalarUDF;

/// What such a function is called on its way; `None` for another.
pub(crate) fn word_of(function: &ScalarUDF) -> Option<String> {
    let word = match function.inner().downcast_ref::<TextCast>() {
        Some(cast) => cast.word()?,
        None => function.name().to_owned(),
    };
    (by_word(&word)? == *function).then_some(word)
}

/// The function that [`word_of`] called so.
pub(crate) fn by_word(word: &str) -> Option<ScalarUDF> {
    let made = [
        Concatenation::function,
        IsAnyOf::function,
        LikeInParts::function,
        sort_key,
        value_or_null::function,
    ];
    if let Some(function) = made.into_iter().map(|function| function()).find(|of| of.name() == word) {
        return Some(function);
    }
    let mut of_rows = moments::INTERNAL.iter().chain(patterns::OPERATORS);
    if let Some(function) = of_rows.find(|function| function.name() == word) {
        return Some(ScalarUDF::new_from_impl(function.clone()));
    }
    TextCast::by_word(word).map(ScalarUDF::new_from_impl)
}
