//! The types of arguments that a function takes.

use super::kinds::Kind;

/// The arguments of one function of a name.
#[derive(Debug)]
pub(super) struct Signature {
    parameters: Vec<Parameter>,
    /// Whether the last parameter stands for any number of arguments, one at least.
    variadic: bool,
}

#[derive(Debug)]
enum Parameter {
    Any,
    AnyArray,
    /// Anything but an array.
    AnyElement,
    /// What a JSON value is read from.
    Document,
    /// A name of a member, a place in an array, or an array of both.
    Path,
    Of(Kind),
}

impl Signature {
    /// Signatures as the table has them: `text | text int4`.
    pub(super) fn parse_all(text: &str) -> Vec<Signature> {
        text.split('|').map(Signature::parse).collect()
    }

    fn parse(text: &str) -> Signature {
        let text = text.trim();
        let (text, variadic) = text.strip_suffix("...").map_or((text, false), |text| (text, true));
        let parameter = |name: &str| match name {
            "any" => Parameter::Any,
            "anyarray" => Parameter::AnyArray,
            "anyelement" => Parameter::AnyElement,
            "document" => Parameter::Document,
            "path" => Parameter::Path,
            name => Parameter::Of(Kind::named(name)),
        };
        Signature { parameters: text.split_ascii_whitespace().map(parameter).collect(), variadic }
    }

    /// Whether a call with such arguments is one of this function.
    pub(super) fn takes(&self, arguments: &[Argument]) -> bool {
        let enough = if self.variadic {
            arguments.len() >= self.parameters.len()
        } else {
            arguments.len() == self.parameters.len()
        };
        let last = self.parameters.last();
        let parameters =
            self.parameters.iter().chain(std::iter::repeat_with(|| last.expect("there is a last")));
        enough && arguments.iter().zip(parameters).all(|(argument, parameter)| parameter.takes(argument))
    }
}

impl Signature {
    /// How many parameters there are.
    pub(super) fn arity(&self) -> usize {
        self.parameters.len()
    }

    /// The kind of parameter `n`, if it has one.
    pub(super) fn kind(&self, n: usize) -> Option<&Kind> {
        match self.parameters.get(n)? {
            Parameter::Of(kind) => Some(kind),
            _ => None,
        }
    }

    /// Whether an argument without a type is rather of this function's: text, or the widest of numbers.
    pub(super) fn is_preferred(&self, arguments: &[Argument]) -> bool {
        arguments.iter().zip(&self.parameters).any(|(argument, parameter)| {
            argument.kind == Kind::Unknown
                && !matches!(parameter, Parameter::Of(kind) if !matches!(kind, Kind::Text | Kind::Float8 | Kind::Timestamptz | Kind::Interval))
        })
    }
}

impl Parameter {
    fn takes(&self, argument: &Argument) -> bool {
        match self {
            Parameter::Any => argument.kind != Kind::Other,
            Parameter::AnyElement => !matches!(argument.kind, Kind::Other | Kind::Array(_)),
            Parameter::Document => {
                argument.kind.is_json() || matches!(argument.kind, Kind::Text | Kind::Bytea | Kind::Unknown)
            }
            Parameter::Path => match &argument.kind {
                Kind::Array(item) => matches!(**item, Kind::Text | Kind::Unknown),
                kind => matches!(kind, Kind::Text | Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Unknown),
            },
            Parameter::AnyArray => matches!(argument.kind, Kind::Array(_)),
            Parameter::Of(kind) => {
                argument.kind.is_taken_as(kind)
                    // A whole number that is written out has the type that it needs.
                    || (argument.literal && argument.kind == Kind::Int8 && *kind == Kind::Int4)
            }
        }
    }
}

/// An argument of a call.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) kind: Kind,
    /// Whether it is written out.
    pub(super) literal: bool,
}
