//! Forms of PostgreSQL that sqlparser does not read, as forms that it reads: `TABLE t`, `trim(both from x)` and the like are
//! written anew in a statement's tokens, before it is parsed; operators are read where they stand.
//!
//! `FETCH` and `MOVE` are written with all of the words that may be left out; a `MOVE` is a `FETCH … INTO` what nothing else is fetched into.

use self::Seen::{Close, Open, Other, Word};
use crate::error::unsupported;
use crate::pg_catalog::call;
use crate::precedence::{Parse, Postgres};
use crate::syntax::syntax_error;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, ObjectName, Value, ValueWithSpan, visit_expressions,
};
use datafusion::sql::sqlparser::dialect::{Dialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword as K;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use oribi_session::sql::SqlError;
use std::ops::ControlFlow;

/// Rewrites the tokens of a statement.
///
/// # Errors
/// `Unsupported` for what has no other form; and which token it is.
pub(crate) fn rewrite(tokens: &mut Vec<TokenWithSpan>) -> Result<(), (SqlError, usize)> {
    let is_code = |t: &TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
    let code: Vec<usize> = (0..tokens.len()).filter(|at| is_code(&tokens[*at])).collect();
    let seen: Vec<Seen> = code.iter().map(|at| Seen::of(&tokens[*at].token)).collect();
    let moves = code.first().is_some_and(|at| is_word(&tokens[*at].token, MOVED));
    if moves || matches!(seen.first(), Some(Word(K::FETCH))) {
        return write_fetch(tokens, &code, &seen, moves);
    }
    let is_copy = matches!(seen.first(), Some(Word(K::COPY)));
    let mut tables = Vec::new();
    for n in 0..seen.len() {
        let superfluous = match &seen[n..] {
            [Word(K::TRIM), Open, Word(K::BOTH | K::LEADING | K::TRAILING), Word(K::FROM), ..] => {
                n + 3..n + 4
            }
            [Word(K::TRIM), Open, Word(K::FROM), ..] => n + 2..n + 3,
            [Word(K::BETWEEN), Word(K::ASYMMETRIC), ..] => n + 1..n + 2,
            // As pgbench writes it.
            [Word(K::FREEZE), Word(is @ (K::ON | K::OFF)), ..] if is_copy => {
                tokens[code[n + 1]].token = Token::make_keyword(if *is == K::ON { "TRUE" } else { "FALSE" });
                continue;
            }
            // Rows are locked as a whole.
            [Word(K::FOR), Word(K::NO), Word(K::KEY), Word(K::UPDATE), ..] => n + 1..n + 3,
            [Word(K::FOR), Word(K::KEY), Word(K::SHARE), ..] => n + 1..n + 2,
            [Word(K::EXCLUDE), Word(K::GROUP | K::TIES), Close, ..]
            | [Word(K::EXCLUDE), Word(K::CURRENT | K::NO), Word(_), Close, ..] => {
                return Err((unsupported("EXCLUDE in the frame of a window"), code[n]));
            }
            [Word(K::TABLE), Word(_), ..] if begins_query(&seen[..n]) => {
                tables.push(code[n]);
                continue;
            }
            _ => continue,
        };
        for at in &code[superfluous] {
            tokens[*at].token = Token::Whitespace(Whitespace::Space);
        }
    }
    for at in tables.into_iter().rev() {
        let select = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
        let span = tokens[at].span;
        tokens.splice(at..=at, select.map(|token| TokenWithSpan { token, span }));
    }
    Ok(())
}

/// A token, as far as it matters here.
#[derive(Clone, Copy)]
enum Seen {
    Word(K),
    Open,
    Close,
    Other,
}

impl Seen {
    fn of(token: &Token) -> Self {
        match token {
            Token::Word(word) => Word(word.keyword),
            Token::LParen => Open,
            Token::RParen => Close,
            _ => Other,
        }
    }
}

/// What a `MOVE` fetches into.
const MOVED: &str = "move";

/// Whether a `FETCH … INTO` was written as `MOVE`.
pub(crate) fn is_moved(into: &ObjectName) -> bool {
    into.to_string() == MOVED
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// `FETCH c`, `FETCH FORWARD FROM c`, `MOVE 5 c` as `FETCH NEXT FROM c`, `FETCH FORWARD 1 FROM c`, `FETCH 5 FROM c INTO move`.
fn write_fetch(
    tokens: &mut Vec<TokenWithSpan>,
    code: &[usize],
    seen: &[Seen],
    moves: bool,
) -> Result<(), (SqlError, usize)> {
    if let Some(at) = seen.iter().position(|seen| matches!(seen, Word(K::INTO))) {
        return Err((syntax_error("syntax error at or near \"INTO\""), code[at]));
    }
    let numbers: Vec<bool> = code.iter().map(|at| matches!(tokens[*at].token, Token::Number(..))).collect();
    let is_number = |n: usize| numbers.get(n).is_some_and(|is_number| *is_number);
    let mut missing: Vec<(usize, Token)> = Vec::new();
    let is_last = |n: usize| n + 1 >= code.len();
    let is_negative =
        |n: usize| code.get(n).is_some_and(|at| tokens[*at].token == Token::Minus) && is_number(n + 1);
    let direction_end = match seen.get(1) {
        // What goes back is refused for that, with its number.
        Some(Word(direction @ (K::FORWARD | K::BACKWARD | K::ABSOLUTE | K::RELATIVE))) if is_negative(2) => {
            let turned = if *direction == K::BACKWARD { "FORWARD" } else { "BACKWARD" };
            tokens[code[1]].token = Token::make_keyword(turned);
            tokens[code[2]].token = Token::Whitespace(Whitespace::Space);
            4
        }
        Some(Word(K::FORWARD | K::BACKWARD)) if !is_last(1) => match seen.get(2) {
            Some(Word(K::ALL)) if !is_last(2) => 3,
            _ if is_number(2) => 3,
            _ => {
                missing.push((2, Token::Number("1".to_owned(), false)));
                2
            }
        },
        Some(Word(K::ABSOLUTE | K::RELATIVE)) if !is_last(1) => 3,
        Some(Other) if tokens[code[1]].token == Token::Minus && is_number(2) => {
            tokens[code[1]].token = Token::make_keyword("BACKWARD");
            3
        }
        Some(Word(K::NEXT | K::PRIOR | K::FIRST | K::LAST | K::ALL)) if !is_last(1) => 2,
        _ if is_number(1) => 2,
        _ => {
            missing.push((1, Token::make_keyword("NEXT")));
            1
        }
    };
    if !matches!(seen.get(direction_end), Some(Word(K::FROM | K::IN))) {
        missing.push((direction_end, Token::make_keyword("FROM")));
    }
    if moves {
        missing.push((code.len(), Token::make_keyword("INTO")));
        missing.push((code.len(), Token::make_word(MOVED, None)));
        tokens[code[0]].token = Token::make_keyword("FETCH");
    }
    let (span, end) = (tokens[code[0]].span, tokens.len());
    // From the last on, and of those at one place the last first, so that places stay what they were.
    for (n, token) in missing.into_iter().rev() {
        let at = code.get(n).copied().unwrap_or(end);
        tokens.insert(at, TokenWithSpan { token, span });
    }
    Ok(())
}

/// Whether a query may follow: the `TABLE` of `CREATE TABLE t` begins none.
fn begins_query(before: &[Seen]) -> bool {
    match before.last() {
        None | Some(Open | Close) => true,
        Some(Word(word)) => matches!(
            word,
            K::AS
                | K::UNION
                | K::INTERSECT
                | K::EXCEPT
                | K::ALL
                | K::DISTINCT
                | K::EXPLAIN
                | K::ANALYZE
                | K::VERBOSE
        ),
        Some(Other) => false,
    }
}

/// An operator behind `left`, if it is one of those that sqlparser does not read.
pub(crate) fn infix(dialect: &Postgres, parser: &mut Parser, left: &Expr) -> Parse {
    between_symmetric(dialect, parser, left).or_else(|| like(dialect, parser, left))
}

/// `x BETWEEN SYMMETRIC a AND b`: between them in one order or in the other. In a nest of those each level writes the ones
/// within twice, so what is written counts as steps.
fn between_symmetric(dialect: &Postgres, parser: &mut Parser, left: &Expr) -> Parse {
    let negated = parser.parse_keywords(&[K::NOT, K::BETWEEN, K::SYMMETRIC]);
    if !negated && !parser.parse_keywords(&[K::BETWEEN, K::SYMMETRIC]) {
        return None;
    }
    Some(parser.parse_between(left.clone(), negated).and_then(|between| {
        dialect.spend(parts(&between))?;
        let mut turned = between.clone();
        if let Expr::Between { low, high, .. } = &mut turned {
            std::mem::swap(low, high);
        }
        let op = if negated { BinaryOperator::And } else { BinaryOperator::Or };
        let either = Expr::BinaryOp { left: Box::new(between), op, right: Box::new(turned) };
        Ok(Expr::Nested(Box::new(either)))
    }))
}

/// `x LIKE pattern ESCAPE escape`, where sqlparser reads a literal alone.
fn like(dialect: &Postgres, parser: &mut Parser, left: &Expr) -> Parse {
    let word = |ahead| match Seen::of(&parser.peek_nth_token_ref(ahead).token) {
        Word(word) => word,
        _ => K::NoKeyword,
    };
    let negated = word(0) == K::NOT;
    let at = usize::from(negated);
    let ignoring_case = match (word(at), word(at + 1)) {
        (K::LIKE | K::ILIKE, K::ANY) => return None,
        (K::LIKE, _) => false,
        (K::ILIKE, _) => true,
        _ => return None,
    };
    (0..=at).for_each(|_| parser.advance_token());
    Some(pattern(dialect, parser).map(|(pattern, escape_char)| {
        let (any, expr, pattern) = (false, Box::new(left.clone()), Box::new(pattern));
        match ignoring_case {
            true => Expr::ILike { negated, any, expr, pattern, escape_char },
            false => Expr::Like { negated, any, expr, pattern, escape_char },
        }
    }))
}

/// A pattern, and the character that is its escape. Any other escape is put into the pattern, as PostgreSQL does.
fn pattern(dialect: &Postgres, parser: &mut Parser) -> Result<(Expr, Option<ValueWithSpan>), ParserError> {
    let place = dialect.prec_value(Precedence::Like);
    let pattern = parser.parse_subexpr(place)?;
    if !parser.parse_keyword(K::ESCAPE) {
        return Ok((pattern, None));
    }
    Ok(match parser.parse_subexpr(place)? {
        Expr::Value(value) if is_character(&value.value) => (pattern, Some(value)),
        escape => (call("like_escape", vec![pattern, escape]), None),
    })
}

fn is_character(value: &Value) -> bool {
    matches!(value, Value::SingleQuotedString(text) if text.chars().count() == 1)
}

/// How many expressions an expression is made of.
fn parts(expr: &Expr) -> usize {
    let mut parts = 0;
    let _ = visit_expressions(expr, |_| {
        parts += 1;
        ControlFlow::<()>::Continue(())
    });
    parts
}

#[cfg(test)]
mod tests {
    use crate::syntax::parse;

    #[test]
    fn a_form_is_read_as_another() {
        let read = |sql: &str| parse(sql).unwrap().statement.to_string();
        for (form, other) in [
            ("TABLE numbers", "SELECT * FROM numbers"),
            ("(TABLE \"N\") UNION ALL TABLE s.n", "(SELECT * FROM \"N\") UNION ALL SELECT * FROM s.n"),
            ("WITH c AS (TABLE n) TABLE c", "WITH c AS (SELECT * FROM n) SELECT * FROM c"),
            (
                "SELECT trim(both from a), trim(leading from a), trim(from a)",
                "SELECT TRIM(BOTH a), TRIM(LEADING a), TRIM(a)",
            ),
            ("SELECT 1 BETWEEN ASYMMETRIC 0 AND 2", "SELECT 1 BETWEEN 0 AND 2"),
            ("SELECT a AS exclude GROUP BY a", "SELECT a AS exclude GROUP BY a"),
            (
                "SELECT a NOT BETWEEN SYMMETRIC 1 AND 2 AND b",
                "SELECT (a NOT BETWEEN 1 AND 2 AND a NOT BETWEEN 2 AND 1) AND b",
            ),
            ("SELECT a LIKE b ESCAPE c OR d", "SELECT a LIKE like_escape(b, c) OR d"),
            ("SELECT a NOT ILIKE 'b' ESCAPE '!'", "SELECT a NOT ILIKE 'b' ESCAPE '!'"),
        ] {
            assert_eq!(read(form), read(other));
        }
        let error = parse("SELECT count(*) OVER (ROWS 1 PRECEDING EXCLUDE TIES)").unwrap_err();
        assert_eq!(
            (error.error.message(), error.position),
            ("EXCLUDE in the frame of a window is not supported", Some(40))
        );
        let nest = format!("SELECT {}1{}", "(".repeat(50), " BETWEEN SYMMETRIC 1 AND 2)".repeat(50));
        assert_eq!(parse(&nest).unwrap_err().sqlstate, Some("54001"));
        assert!(parse("CREATE TABLE t (id integer PRIMARY KEY)").is_ok());
    }
}
