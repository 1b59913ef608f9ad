//! Comparison of rows, `(a, b) < (c, d)`, as comparison of their parts. A null among them makes the answer null only if
//! the parts before it do not decide.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

/// The comparison by parts; `None` if this is none of rows of one length.
pub(super) fn by_parts(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::BinaryOp { left, op, right } => compared(parts(left)?, op, parts(right)?),
        Expr::InList { expr, list, negated } => {
            let row = parts(expr)?;
            let equal = list.iter().map(|item| compared(row, &BinaryOperator::Eq, parts(item)?));
            let found = any(equal.collect::<Option<Vec<_>>>()?)?;
            Some(match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested(found)) },
                false => nested(found),
            })
        }
        _ => None,
    }
}

fn parts(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(parts) => Some(parts),
        Expr::Nested(inner) => parts(inner),
        _ => None,
    }
}

fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    use BinaryOperator as B;
    if left.len() != right.len() || left.is_empty() {
        return None;
    }
    let pairs = |op: B| left.iter().zip(right).map(move |(l, r)| binary(l.clone(), op.clone(), r.clone()));
    let strictly = match op {
        B::Eq => return pairs(B::Eq).reduce(|all, pair| binary(all, B::And, pair)).map(nested),
        B::NotEq => return pairs(B::NotEq).reduce(|any, pair| binary(any, B::Or, pair)).map(nested),
        B::Lt | B::LtEq => B::Lt,
        B::Gt | B::GtEq => B::Gt,
        _ => return None,
    };
    // From the last pair on: the first pair that differs decides, and the last decides by the operator itself.
    let (last, before) = (left.len() - 1, left[..left.len() - 1].iter().zip(right));
    let mut all = binary(left[last].clone(), op.clone(), right[last].clone());
    for (l, r) in before.rev() {
        let equal = binary(l.clone(), B::Eq, r.clone());
        let decided = binary(l.clone(), strictly.clone(), r.clone());
        all = nested(binary(decided, B::Or, nested(binary(equal, B::And, all))));
    }
    Some(nested(all))
}

/// The `OR` of many conditions, nested no deeper than it must be.
fn any(mut conditions: Vec<Expr>) -> Option<Expr> {
    while conditions.len() > 1 {
        let mut pairs = Vec::with_capacity(conditions.len().div_ceil(2));
        let mut rest = conditions.into_iter();
        while let Some(one) = rest.next() {
            pairs.push(match rest.next() {
                Some(other) => nested(binary(one, BinaryOperator::Or, other)),
                None => one,
            });
        }
        conditions = pairs;
    }
    conditions.pop()
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}
