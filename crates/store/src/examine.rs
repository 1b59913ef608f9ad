//! Whether a store does what its manifest needs: of several who put at the same time, exactly one may succeed.

use crate::bucket::{Body, Bucket, Expected, get_small, if_there, random_text};
use crate::patient::{Patience, Patient};
use oribi_env::{Env, File};
use oribi_types::{Error, ErrorKind, Result};
use std::cell::OnceCell;
use std::sync::{Arc, Barrier, Mutex, PoisonError};

/// Who put at the same time.
const RACERS: usize = 8;
const BYTES_MAX: usize = 1 << 20;
/// Of an object that comes in parts.
const LONG_BYTES: u64 = 17 << 20;

/// Races for objects `rounds` times, below a name of its own that is removed at the end. Nothing else is touched.
///
/// # Errors
/// `Unsupported`, naming the store and what it does wrong; those of reaching it.
pub fn examine(bucket: Arc<dyn Bucket>, rounds: usize) -> Result<()> {
    // Some stores tell all but one to try again.
    let bucket = &Patient::new(bucket, Env::real().clock, Patience::default());
    let id = random_text()?;
    let names: Vec<String> = (0..rounds).map(|round| format!("doctor/{id}/{round:04}")).collect();
    let examined = examine_plain(bucket, &format!("doctor/{id}/plain"))
        .and_then(|()| names.iter().try_for_each(|name| examine_races(bucket, name)))
        .and_then(|()| examine_long(bucket, &format!("doctor/{id}/long")))
        .and_then(|()| examine_list(bucket, &format!("doctor/{id}/"), &names));
    let objects = bucket.list(&format!("doctor/{id}/"));
    let removed = objects.iter().flatten().try_for_each(|object| bucket.remove(&object.name));
    // What was found says more than that what is left cannot be removed.
    examined.and(removed).map_err(|error| match error.kind() {
        ErrorKind::Unsupported => error.context(format!("store {} cannot be used", bucket.url())),
        _ => error,
    })
}

fn wrong(what: impl Into<String>) -> Error {
    Error::unsupported(what)
}

/// One who is alone finds what he has put.
fn examine_plain(bucket: &dyn Bucket, name: &str) -> Result<()> {
    let get = || if_there(get_small(bucket, name, BYTES_MAX));
    if get()?.is_some() {
        return Err(wrong("it has objects that nobody has put"));
    }
    let first = bucket.put(name, Body::Bytes(b"first"), Expected::Nothing)?;
    if get()? != Some((b"first".to_vec(), first.clone())) {
        return Err(wrong("an object that was put is not what is there"));
    }
    is_refused(bucket.put(name, Body::Bytes(b"second"), Expected::Nothing), "If-None-Match: *")?;
    let second = bucket.put(name, Body::Bytes(b"second"), Expected::Tag(&first))?;
    if second == first || bucket.tag(name)? != second {
        return Err(wrong("an object that is replaced does not get another ETag"));
    }
    is_refused(bucket.put(name, Body::Bytes(b"third"), Expected::Tag(&first)), "If-Match")?;
    if get()? != Some((b"second".to_vec(), second)) {
        return Err(wrong("an object that was replaced is not what is there"));
    }
    bucket.remove(name)?;
    match get()? {
        None => Ok(()),
        Some(_) => Err(wrong("an object that was removed is there")),
    }
}

fn is_refused(put: Result<String>, condition: &str) -> Result<()> {
    match put {
        Ok(_) => Err(wrong(format!("it takes no heed of {condition}"))),
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        Err(error) => Err(error),
    }
}

/// Several put an object where there is none, and several replace it.
fn examine_races(bucket: &dyn Bucket, name: &str) -> Result<()> {
    let (winner, tag) = race(bucket, name, Expected::Nothing, "If-None-Match: *")?;
    is_there(bucket, name, &winner)?;
    let (winner, _) = race(bucket, name, Expected::Tag(&tag), "If-Match")?;
    is_there(bucket, name, &winner)
}

fn is_there(bucket: &dyn Bucket, name: &str, winner: &[u8]) -> Result<()> {
    match get_small(bucket, name, BYTES_MAX)?.0 == winner {
        true => Ok(()),
        false => Err(wrong("of several who put at the same time another has won than was told")),
    }
}

/// What the one who won has put, and its tag.
fn race(
    bucket: &dyn Bucket,
    name: &str,
    expected: Expected<'_>,
    condition: &str,
) -> Result<(Vec<u8>, String)> {
    let (start, ends) = (Barrier::new(RACERS), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for racer in 0..RACERS {
            let (start, ends) = (&start, &ends);
            scope.spawn(move || {
                // Long enough that the requests of all are under way.
                let body = format!("{condition} {racer} ").repeat(4096).into_bytes();
                start.wait();
                let put = bucket.put(name, Body::Bytes(&body), expected);
                ends.lock().unwrap_or_else(PoisonError::into_inner).push((body, put));
            });
        }
    });
    let (mut won, mut failed) = (Vec::new(), None);
    for (body, put) in ends.into_inner().unwrap_or_else(PoisonError::into_inner) {
        match put {
            Ok(tag) => won.push((body, tag)),
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            Err(error) => failed = Some(error),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    match won.len() {
        1 => Ok(won.remove(0)),
        n => Err(wrong(format!("{n} of {RACERS} have won who put at the same time with {condition}"))),
    }
}

/// A file of which all bytes are the same.
struct Long(u8);

impl File for Long {
    fn read_at(&self, buf: &mut [u8], _: u64) -> std::io::Result<()> {
        buf.fill(self.0);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn len(&self) -> std::io::Result<u64> {
        Ok(LONG_BYTES)
    }

    fn allocate(&self, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn set_len(&self, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// A long object is what was put, whole, and is not put on another: one that is there, or comes while it is put.
fn examine_long(bucket: &dyn Bucket, name: &str) -> Result<()> {
    bucket.put(name, Body::File(&Long(1)), Expected::Nothing)?;
    is_refused(
        bucket.put(name, Body::File(&Long(2)), Expected::Nothing),
        "If-None-Match: *, of a long object",
    )?;
    let (mut end, mut is_right) = (0, true);
    bucket.get(name, &mut |part, at| {
        is_right &= (at == 0 || at == end) && part.iter().all(|byte| *byte == 1);
        end = at + part.len() as u64;
        Ok(())
    })?;
    if end != LONG_BYTES || !is_right {
        return Err(wrong("a long object that was put is not what is there"));
    }
    bucket.remove(name)?;
    let other = OnceCell::new();
    let put_other = || {
        other.get_or_init(|| bucket.put(name, Body::Bytes(b"other"), Expected::Nothing));
    };
    let late = bucket.put(name, Body::Watched(&Long(3), &put_other), Expected::Nothing);
    other.into_inner().ok_or_else(|| wrong("it takes a long object without reading it"))??;
    is_refused(late, "If-None-Match: *, of a long object while it comes")?;
    match get_small(bucket, name, BYTES_MAX)?.0.as_slice() {
        b"other" => bucket.remove(name),
        _ => Err(wrong("a long object that was refused is there")),
    }
}

fn examine_list(bucket: &dyn Bucket, prefix: &str, names: &[String]) -> Result<()> {
    let listed: Vec<String> = bucket.list(prefix)?.into_iter().map(|object| object.name).collect();
    if listed == names { Ok(()) } else { Err(wrong("its list is not of what was put")) }
}
