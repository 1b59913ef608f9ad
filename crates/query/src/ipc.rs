//! A batch in Arrow's format of streams, within what other processes are sent.

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use arrow::ipc::{Message, root_as_message};
use oribi_types::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// # Errors
/// Those of Arrow's format.
pub(crate) fn to_bytes(batch: &RecordBatch) -> std::result::Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, batch.schema_ref())?;
    writer.write(batch)?;
    writer.finish()?;
    Ok(bytes)
}

/// What [`to_bytes`] made. Of bytes that are others no room is made that they do not fill, and a panic of Arrow's is an error.
///
/// # Errors
/// `Corrupt`.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<RecordBatch> {
    let read = || {
        only_plain(bytes)?;
        StreamDecoder::new().decode(&mut Buffer::from(bytes)).ok().flatten()
    };
    catch_unwind(AssertUnwindSafe(read))
        .ok()
        .flatten()
        .ok_or_else(|| Error::corrupt("rows within a message: they are none"))
}

/// Whether these are messages that fill no more room than the bytes do.
pub fn are_batches(bytes: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| only_plain(bytes))).ok().flatten().is_some()
}

/// `None` if there is a message of compressed rows, which says itself how long they are, or none at all.
fn only_plain(mut bytes: &[u8]) -> Option<()> {
    while let Some((mark, rest)) = bytes.split_first_chunk() {
        let (length, rest) = rest.split_first_chunk()?;
        let (message, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        if *mark != [0xff; 4] {
            return None;
        }
        if message.is_empty() {
            break;
        }
        let message = plain(message)?;
        bytes = rest.get(usize::try_from(message.bodyLength()).ok()?..)?;
    }
    Some(())
}

/// Whether this is the head of a message whose rows are not compressed.
pub fn is_plain(message: &[u8]) -> bool {
    catch_unwind(|| plain(message).is_some()).unwrap_or(false)
}

fn plain(message: &[u8]) -> Option<Message<'_>> {
    let message = root_as_message(message).ok()?;
    let of_dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
    let rows = message.header_as_record_batch().or(of_dictionary);
    rows.is_none_or(|rows| rows.compression().is_none()).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, AsArray, DictionaryArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int32Type;
    use arrow::ipc::CompressionType;
    use arrow::ipc::writer::IpcWriteOptions;
    use std::sync::Arc;

    fn rows() -> RecordBatch {
        let words: DictionaryArray<Int32Type> = ["few", "few", "words"].into_iter().collect();
        let long = "long enough to stand elsewhere";
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]))),
            ("t", Arc::new(StringViewArray::from(vec![Some(long), None, Some("short")]))),
            ("w", Arc::new(words)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let read = from_bytes(&to_bytes(&rows()).unwrap()).unwrap();
        assert_eq!(read, rows());
        assert_eq!(read.column(2).as_dictionary::<Int32Type>().values().len(), 2);
    }

    #[test]
    fn damaged_bytes_are_refused_or_rows() {
        let bytes = to_bytes(&rows()).unwrap();
        for at in 0..bytes.len() {
            let _ = from_bytes(&bytes[..at]);
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let _ = from_bytes(&damaged);
            }
        }
    }

    #[test]
    fn what_says_that_it_is_longer_is_refused() {
        let bytes = to_bytes(&rows()).unwrap();
        assert!(are_batches(&bytes) && are_batches(&[]));
        // How long the first message is, Arrow's reader believes, and makes room.
        let mut longer = bytes.clone();
        longer[4..8].copy_from_slice(&(i32::MAX as u32).to_le_bytes());
        assert!(!are_batches(&longer) && !are_batches(&bytes[..bytes.len() / 2]));
    }

    #[test]
    fn compressed_rows_are_refused() {
        let options =
            IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
        let mut bytes = Vec::new();
        let mut writer =
            StreamWriter::try_new_with_options(&mut bytes, rows().schema_ref(), options).unwrap();
        if writer.write(&rows()).is_ok() {
            writer.finish().unwrap();
            drop(writer);
            assert!(from_bytes(&bytes).unwrap_err().to_string().contains("they are none"));
        }
    }
}
