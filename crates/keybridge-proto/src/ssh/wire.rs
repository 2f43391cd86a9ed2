//! Parses the fields of a body that may be incomplete.

/// A field that is longer than its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a field that ends within its frame, got a longer one")]
pub struct Malformed;

/// Why a field can't be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// The rest of it may still come.
    More,
    /// It can't.
    Malformed,
}

/// The beginning of a sequence of fields whose total size is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    here: &'a [u8],
    /// How many bytes there are in total, here or still to come.
    size: usize,
}

impl<'a> Fields<'a> {
    /// Fields of `size` bytes, of which these are here.
    pub(super) const fn new(here: &'a [u8], size: usize) -> Self {
        Self { here, size }
    }

    /// How many bytes are left in total.
    pub(super) const fn left(&self) -> usize {
        self.size
    }

    /// The next bytes, as they are.
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Lack> {
        self.size.checked_sub(count).ok_or(Lack::Malformed)?;
        let (bytes, rest) = self.here.split_at_checked(count).ok_or(Lack::More)?;
        *self = Self { here: rest, size: self.size - count };
        Ok(bytes)
    }

    /// A number.
    pub(super) fn u32(&mut self) -> Result<u32, Lack> {
        let bytes = self.bytes(4)?.try_into().map_err(|_| Lack::Malformed)?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// A byte.
    pub(super) fn u8(&mut self) -> Result<u8, Lack> {
        self.bytes(1)?.first().copied().ok_or(Lack::Malformed)
    }

    /// All bytes that are left.
    pub(super) fn rest(&mut self) -> Result<&'a [u8], Lack> {
        self.bytes(self.size)
    }

    /// Nothing is left.
    pub(super) const fn end(&self) -> Result<(), Lack> {
        if self.size == 0 { Ok(()) } else { Err(Lack::Malformed) }
    }

    /// A number of any size that isn't negative, without leading zeros.
    pub(super) fn mpint(&mut self) -> Result<&'a [u8], Lack> {
        let number = self.string()?;
        if number.first().is_some_and(|&first| first >= 0x80) {
            return Err(Lack::Malformed);
        }
        let zeros = number.iter().take_while(|&&byte| byte == 0).count();
        Ok(number.get(zeros..).unwrap_or_default())
    }

    /// A string: its length, and so many bytes.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Lack> {
        let length = self.length()?;
        self.bytes(length)
    }

    /// A string, unless it is longer than that.
    pub(super) fn short_string(&mut self, most: usize) -> Result<Option<&'a [u8]>, Lack> {
        let length = self.length()?;
        if length > most { Ok(None) } else { self.bytes(length).map(Some) }
    }

    /// The fields in a string that may be incomplete. Nothing can be read after it.
    pub(super) fn inside_string(mut self) -> Result<Self, Lack> {
        let size = self.length()?;
        let here = self.here.get(..size).unwrap_or(self.here);
        Ok(Self { here, size })
    }

    /// The length of a string that ends within these fields.
    fn length(&mut self) -> Result<usize, Lack> {
        let length = usize::try_from(self.u32()?).map_err(|_| Lack::Malformed)?;
        if length > self.size { Err(Lack::Malformed) } else { Ok(length) }
    }
}

/// Appends a string, which is shorter than a frame may be.
pub(super) fn put_string(bytes: &mut Vec<u8>, string: &[u8]) {
    bytes.extend_from_slice(&u32::try_from(string.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(string);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_read_when_it_is_whole() {
        let mut bytes = Vec::new();
        put_string(&mut bytes, b"key");
        put_string(&mut bytes, b"");
        for here in 0..bytes.len() {
            let mut fields = Fields::new(&bytes[..here], bytes.len());
            let first = fields.string();
            assert_eq!(first, if here < 7 { Err(Lack::More) } else { Ok(&b"key"[..]) });
            if here >= 7 {
                assert_eq!(fields.left(), 4);
                assert_eq!(fields.string(), Err(Lack::More), "{here}");
            }
        }
        let mut fields = Fields::new(&bytes, bytes.len());
        assert_eq!((fields.string(), fields.string()), (Ok(&b"key"[..]), Ok(&b""[..])));
        assert_eq!(fields.string(), Err(Lack::Malformed));
    }

    #[test]
    fn a_string_over_the_end_is_malformed_before_it_is_there() {
        assert_eq!(Fields::new(b"\0\0\0\x05", 8).string(), Err(Lack::Malformed));
        assert_eq!(Fields::new(b"\xff\xff\xff\xff", 8).string(), Err(Lack::Malformed));
        assert_eq!(Fields::new(b"\0\0", 2).string(), Err(Lack::Malformed));
        assert_eq!(Fields::new(b"\0\0\0\x04", 8).string(), Err(Lack::More));
    }
}
