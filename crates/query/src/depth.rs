//! How deep a statement's tree and plan will be, from its tokens.
//!
//! The parser bounds what it recurses into, but it builds `1 + 1 + 1 …` in a loop: a tree as deep as the chain is long,
//! which overflows the stack of whoever clones, visits or drops it, and so ends the process. So the depth is estimated
//! before there is a tree. The estimate errs upwards, by the words and signs of a list item that chain nothing; a list
//! may have any number of items, for its tree grows in width. The tables of a `FROM` are no such list: each join adds a
//! level to the plan.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

/// The longest chain of operators. Measured without optimisation on a stack of 2 MiB, which serving threads have, the
/// deepest tree that survives has 1,000 casts in a row, or 500 `UNION`s.
pub(crate) const CHAIN_MAX: usize = 500;

/// The most queries and joins of a statement; each may be a level of its plan.
pub(crate) const RELATIONS_MAX: usize = 250;

/// A `UNION` takes as much stack as this many operators.
const SET_OPERATION: usize = 2;

/// What stands between two parentheses, or between `CASE` and `END`.
#[derive(Default)]
struct Level {
    is_case: bool,
    /// In the list behind `FROM`.
    in_from: bool,
    /// Set operations so far; they bind the loosest.
    sets: usize,
    /// `AND` and `OR` of the current item; they bind looser than other operators.
    logical: usize,
    /// Other operators since the last of those.
    links: usize,
    /// The deepest of what was between `AND`s and `OR`s of the current item.
    operand: usize,
    /// The deepest of the items before.
    item: usize,
}

impl Level {
    fn end_operand(&mut self) {
        self.operand = self.operand.max(std::mem::take(&mut self.links));
    }

    fn end_item(&mut self) {
        self.end_operand();
        let depth = std::mem::take(&mut self.logical) + std::mem::take(&mut self.operand);
        self.item = self.item.max(depth);
    }

    fn word(&mut self, keyword: Keyword) {
        match keyword {
            Keyword::NoKeyword => {}
            Keyword::AND | Keyword::OR => {
                self.end_operand();
                self.logical += 1;
            }
            Keyword::WHEN | Keyword::THEN | Keyword::ELSE if self.is_case => self.end_item(),
            Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => {
                self.end_item();
                self.sets += SET_OPERATION;
                self.in_from = false;
            }
            Keyword::FROM | Keyword::USING => self.in_from = true,
            Keyword::WHERE | Keyword::GROUP | Keyword::ORDER => self.in_from = false,
            _ => self.links += 1,
        }
    }

    fn depth(&self) -> usize {
        self.sets + self.item.max(self.logical + self.operand.max(self.links))
    }
}

/// What a statement has too many of, if its tree or plan would be too deep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Excess {
    Chain,
    Relations,
}

/// Checks the tokens of one statement.
///
/// # Errors
/// What exceeds its bound; nesting is the parser's to bound.
pub(crate) fn check<'t>(tokens: impl Iterator<Item = &'t Token>) -> Result<(), Excess> {
    let mut outer: Vec<Level> = Vec::new();
    let mut level = Level::default();
    let mut relations = 0;
    for token in tokens {
        match token {
            Token::LParen => outer.push(std::mem::take(&mut level)),
            Token::RParen => close(&mut outer, &mut level),
            Token::Comma => {
                level.end_item();
                relations += usize::from(level.in_from);
            }
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::CASE => {
                    outer.push(std::mem::replace(&mut level, Level { is_case: true, ..Level::default() }));
                }
                Keyword::END if level.is_case => close(&mut outer, &mut level),
                Keyword::SELECT | Keyword::JOIN => relations += 1,
                keyword => level.word(keyword),
            },
            Token::Word(_)
            | Token::Whitespace(_)
            | Token::Period
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Placeholder(_) => {}
            _ => level.links += 1,
        }
        if level.depth() > CHAIN_MAX {
            return Err(Excess::Chain);
        }
        if relations > RELATIONS_MAX {
            return Err(Excess::Relations);
        }
    }
    Ok(())
}

/// What was in the parentheses becomes an operand of what stands around them.
fn close(outer: &mut Vec<Level>, level: &mut Level) {
    if let Some(around) = outer.pop() {
        let inner = std::mem::replace(level, around).depth();
        level.links = level.links.max(inner + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    fn bounded(sql: &str) -> bool {
        check(Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().unwrap().iter()).is_ok()
    }

    #[test]
    fn chains_are_refused_wherever_they_stand() {
        let nested = |unit: &str| format!("select {}1{}", "(".repeat(40), format!("{unit})").repeat(40));
        for (start, unit) in [
            ("select 1", "+1"),
            ("select a", "::int"),
            ("select 1 where a = 1", " or a = 1"),
            ("select 1 where f(a, b", " or a"),
            ("select case when true then 1", "+1"),
            ("select 1 where 1 between 1 and 1", " between 1 and 1"),
            ("select 1", " union all select 1"),
            ("select a", " is true"),
            ("select a", " operator(+) 1"),
            ("create table t (a int", "[]"),
            ("select 1 from t", ", t"),
            ("select 1 from t", " join t on true"),
            ("with a as (select 1)", ", a as (select * from a)"),
        ] {
            assert!(bounded(&format!("{start}{}", unit.repeat(20))), "{start}{unit}");
            assert!(!bounded(&format!("{start}{}", unit.repeat(1000))), "{start}{unit}");
        }
        // Each is short, and the left side of the next.
        assert!(bounded(&nested("+1+1")));
        assert!(!bounded(&nested(&"+1".repeat(20))));
    }

    #[test]
    fn lists_may_be_long() {
        let many = |start: &str, unit: &str| format!("{start}{}", unit.repeat(100_000));
        assert!(bounded(&many("insert into t values (1, -1, 'a')", ", (-1 + 2, -2, now() - '1 day')")));
        assert!(bounded(&many("select 1 where a in (1", ", -2")));
        assert!(bounded(&format!("select case a {} end", "when a = 1 then b + 2 ".repeat(5000))));
        let keys = " or (a = 1 and b = 2)".repeat(490);
        assert!(bounded(&format!("select 1 where a = 1{keys}")));
    }
}
