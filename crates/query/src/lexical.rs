//! Words, numbers and operators of SQL, as PostgreSQL tells them apart.
//!
//! sqlparser takes as many signs for one operator as there are: `>-` in `1 >-1`. PostgreSQL ends an operator before a
//! sign, unless the operator has a sign that no number begins with; no operator that exists here ends in one. Before a
//! comment it ends every operator. And numbers are those of PostgreSQL 15: `0x1f`, `1_000` and `1a` are none.

use crate::error::invalid;
use crate::syntax::{Walk, syntax_error};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, TokenizerError};
use oribi_session::sql::SqlError;
use std::any::TypeId;
use std::borrow::Cow;

/// The longest operator that there is; what is longer is a text or a name in quotes.
const OPERATOR_MAX: usize = 3;

/// So many comments may be misread: for each the text is read once more.
const COMMENTS_MAX: usize = 16;

/// The tokens of `sql`, with their places.
///
/// # Errors
/// For text that does not tokenize.
pub(crate) fn tokens(sql: &str) -> Result<Vec<TokenWithSpan>, TokenizerError> {
    let mut text = Cow::Borrowed(sql);
    for _ in 0..COMMENTS_MAX {
        let (mut tokens, dialect) = (Vec::new(), Lexical(PostgreSqlDialect {}));
        let read = Tokenizer::new(&dialect, &text).tokenize_with_location_into_buf(&mut tokens);
        let Some(start) = misread_comment(&text, &tokens) else { return read.map(|()| tokens) };
        let comment = start..start + comment_bytes(&text[start..]);
        // What follows keeps its place.
        let blank: String = text[comment.clone()].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        text.to_mut().replace_range(comment, &blank);
    }
    Tokenizer::new(&Lexical(PostgreSqlDialect {}), &text).tokenize_with_location()
}

/// Where the first comment begins that was read as part of an operator: `#--` as `#-` and `-`, `||/*` as one.
fn misread_comment(text: &str, tokens: &[TokenWithSpan]) -> Option<usize> {
    let within = |two: &[TokenWithSpan]| match &two[0].token {
        Token::HashMinus => {
            let is_followed =
                two[0].span.end == two[1].span.start && two[1].token.to_string().starts_with('-');
            is_followed.then_some((two[0].span.start, 1))
        }
        Token::CustomBinaryOperator(operator) => Some((two[0].span.start, operator.find("/*")?)),
        _ => None,
    };
    let (operator, bytes) = tokens.windows(2).find_map(within)?;
    Some(Walk::new(text).byte(operator) + bytes)
}

/// The length of the comment that `text` begins with.
fn comment_bytes(text: &str) -> usize {
    if text.starts_with("--") {
        return text.find('\n').unwrap_or(text.len());
    }
    let (mut depth, mut at) = (0, 0);
    while let Some(two) = text.as_bytes().get(at..at + 2) {
        match two {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Refuses what sqlparser takes for numbers and PostgreSQL does not, and `==`.
///
/// # Errors
/// `Invalid` (42601, 42883), `Unsupported` for bit strings; and which token it is.
pub(crate) fn check_numbers(tokens: &[TokenWithSpan]) -> Result<(), (SqlError, usize)> {
    for (i, TokenWithSpan { token, span }) in tokens.iter().enumerate() {
        let next = tokens.get(i + 1);
        let junk = match token {
            Token::Number(digits, long) => {
                *long
                    || digits.contains('_')
                    || next.is_some_and(|n| matches!(n.token, Token::Word(_)) && n.span.start == span.end)
            }
            Token::HexStringLiteral(_) | Token::SingleQuotedByteStringLiteral(_) => {
                return Err((crate::error::unsupported("a bit string"), i));
            }
            Token::DoubleEq => {
                return Err((crate::error::invalid("42883", "operator does not exist: =="), i));
            }
            _ => false,
        };
        if junk {
            return Err((
                syntax_error(format!("trailing junk after numeric literal at or near \"{token}\"")),
                i,
            ));
        }
    }
    Ok(())
}

/// Refuses what is one operator in PostgreSQL, since it has a sign that no number begins with: `%-` in `5%-3`.
///
/// # Errors
/// `Invalid` (42883); and which token it is.
pub(crate) fn check_operators(sql: &str, tokens: &[TokenWithSpan]) -> Result<(), (SqlError, usize)> {
    let mut text = Walk::new(sql);
    for (i, two) in tokens.windows(2).enumerate() {
        let [operator, sign] = two else { continue };
        let is_sign =
            matches!(sign.token, Token::Plus | Token::Minus) && operator.span.end == sign.span.start;
        let is_operand = matches!(
            operator.token,
            Token::Word(_) | Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_)
        );
        if !is_sign || is_operand {
            continue;
        }
        let written = &sql[text.byte(operator.span.start)..text.byte(operator.span.end)];
        if written.len() <= OPERATOR_MAX
            && written.contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?'])
        {
            let message = format!("operator does not exist: {written}{}", sign.token);
            return Err((invalid("42883", message), i));
        }
    }
    Ok(())
}

/// PostgreSQL's dialect, for the tokenizer alone: it answers as that does, but for the signs, and for the slash that
/// begins a comment: the operators of PostgreSQL that have one are not there.
#[derive(Debug)]
struct Lexical(PostgreSqlDialect);

impl Dialect for Lexical {
    fn dialect(&self) -> TypeId {
        self.0.dialect()
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        !matches!(ch, '+' | '-' | '/') && self.0.is_custom_operator_part(ch)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        self.0.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        self.0.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        self.0.is_identifier_part(ch)
    }

    fn supports_unicode_string_literal(&self) -> bool {
        self.0.supports_unicode_string_literal()
    }

    fn supports_string_escape_constant(&self) -> bool {
        self.0.supports_string_escape_constant()
    }

    fn supports_nested_comments(&self) -> bool {
        self.0.supports_nested_comments()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        self.0.supports_numeric_literal_underscores()
    }

    fn supports_geometric_types(&self) -> bool {
        self.0.supports_geometric_types()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::tokenizer::Whitespace;

    fn kinds(sql: &str) -> Vec<Token> {
        let tokens = tokens(sql).unwrap().into_iter().map(|t| t.token);
        tokens.filter(|t| !matches!(t, Token::Whitespace(Whitespace::Space))).collect()
    }

    #[test]
    fn an_operator_ends_before_a_sign() {
        for op in [
            "<", ">", "<=", ">=", "=", "<>", "+", "-", "*", "/", "%", "^", "||", "&", "|", "#", "<<", ">>",
            "->", "->>",
        ] {
            for sign in ["-", "+"] {
                // Two signs begin a comment, and `#-` is an operator of PostgreSQL's own.
                if sign == "-" && ["-", "#"].contains(&op) {
                    continue;
                }
                assert_eq!(kinds(&format!("a{op}{sign}1")), kinds(&format!("a {op} {sign} 1")), "{op}{sign}");
            }
            for comment in ["--it's\n", "---'\n", "-->'\n", "/*c*/", "/*it's\n/**/*/"] {
                // `---` is a comment from its start.
                if op == "-" && comment.starts_with('-') {
                    continue;
                }
                let is_code = |t: &Token| !matches!(t, Token::Whitespace(_));
                let commented: Vec<Token> =
                    kinds(&format!("a{op}{comment}1")).into_iter().filter(is_code).collect();
                assert_eq!(commented, kinds(&format!("a {op} 1")), "{op}{comment}");
            }
        }
    }

    #[test]
    fn what_stands_behind_a_comment_keeps_its_place() {
        let is_code = |t: &TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
        let code = |sql: &str| tokens(sql).unwrap().into_iter().filter(is_code).collect::<Vec<_>>();
        let commented = "a#--'c\n  b #-- d\n c||/*é\n/*'*/*/d || 'x'";
        assert_eq!(code(commented), code("a#\n  b #\n c||\n       d || 'x'"));
        assert_eq!(kinds("'#--' \"#--\"").len(), 2, "in quotes it is none");
    }

    #[test]
    fn every_question_of_the_tokenizer_is_answered_as_postgresqls_dialect_does() {
        let text = r#"select E'a\n', U&'\0061', "q""x", $tag$b$tag$, 'c''d', /* x /* y */ */ a.b[1:2], :p, $1, 1e5, .5
            from "Ä" where a @> b and c <@ d and e ?| f and g #>> '{h}' and i ~* j and k && l -- end"#;
        let theirs = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().unwrap();
        assert_eq!(tokens(text).unwrap(), theirs);
    }

    #[test]
    fn what_is_no_number_in_postgresql_is_none() {
        for sql in ["select 0x1f", "select 1_000", "select 1a", "select x'1f'", "select b'01'", "select 5L"] {
            assert!(check_numbers(&tokens(sql).unwrap()).is_err(), "{sql}");
        }
        assert!(
            check_numbers(&tokens("select 1 a, 1.5, .5, 5., 1e9, t1.a1 from t limit 1;").unwrap()).is_ok()
        );
    }
}
