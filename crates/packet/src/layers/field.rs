use crate::key::Kind;

/// A field of a header.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, for help texts.
    pub about: &'static str,
    /// How its values are written.
    pub kind: Kind,
    /// Its position.
    pub place: FieldPosition,
    /// Its effect on the rest of the frame.
    pub role: Role,
    /// Whether users may name it without its protocol.
    pub bare: bool,
    /// Adds it to a header that lacks it.
    pub add: fn(&mut Vec<u8>),
}

/// Position of a field in its header.
#[derive(Clone, Copy, Debug)]
pub enum FieldPosition {
    /// Offset and width in bits.
    Bits(u16, u16),
    /// Offset in bits, computed from a header of the protocol, and width in bits; `None` if the field is absent.
    Found(fn(&[u8]) -> Option<u16>, u16),
}

/// Effect of a field on the rest of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No effect.
    Plain,
    /// A length, which streams and rewriting maintain.
    Length,
    /// A checksum, which streams and rewriting maintain.
    Checksum,
    /// Determines what follows, or the shape of the header.
    Shape,
}

impl Field {
    /// A number of up to 32 bits.
    pub(super) const fn number(name: &'static str, at: u16, bits: u16, about: &'static str) -> Field {
        let most = if bits >= 32 { u32::MAX } else { (1 << bits) - 1 };
        Field {
            name,
            about,
            kind: Kind::Number(most),
            place: FieldPosition::Bits(at, bits),
            role: Role::Plain,
            bare: true,
            add: |_| {},
        }
    }

    /// A hardware address.
    pub(super) const fn mac(name: &'static str, at: u16, about: &'static str) -> Field {
        Field { kind: Kind::Mac, place: FieldPosition::Bits(at, 48), ..Field::number(name, at, 8, about) }
    }

    /// An IP address of 32 or 128 bits.
    pub(super) const fn address(name: &'static str, at: u16, bits: u16, about: &'static str) -> Field {
        Field { kind: Kind::Address, place: FieldPosition::Bits(at, bits), ..Field::number(name, at, 8, about) }
    }

    pub(super) const fn of_kind(self, kind: Kind) -> Field {
        Field { kind, ..self }
    }

    pub(super) const fn role(self, role: Role) -> Field {
        Field { role, ..self }
    }

    /// Several protocols use its name for different things, so users must also name the protocol.
    pub(super) const fn named_with_layer(self) -> Field {
        Field { bare: false, ..self }
    }

    /// Its offset is computed by `find`.
    pub(super) const fn found(self, find: fn(&[u8]) -> Option<u16>) -> Field {
        Field { place: FieldPosition::Found(find, self.width()), ..self }
    }

    /// `add` adds it to a header that lacks it.
    pub(super) const fn added_by(self, add: fn(&mut Vec<u8>)) -> Field {
        Field { add, ..self }
    }

    /// Its width in bits.
    #[must_use]
    pub const fn width(&self) -> u16 {
        match self.place {
            FieldPosition::Bits(_, width) | FieldPosition::Found(_, width) => width,
        }
    }

    /// Bits from the start of this header to the field; `None` if the header lacks it.
    #[must_use]
    pub fn offset(&self, header: &[u8]) -> Option<u16> {
        let at = match self.place {
            FieldPosition::Bits(at, _) => at,
            FieldPosition::Found(find, _) => find(header)?,
        };
        (usize::from(at + self.width()) <= header.len() * 8).then_some(at)
    }

    /// Reads its value from this header.
    #[must_use]
    pub fn read(&self, header: &[u8]) -> Option<u128> {
        let at = usize::from(self.offset(header)?);
        Some(read_bits(header, at, usize::from(self.width())))
    }

    /// Writes its value into this header; false if the header lacks the field. Updates no checksum: see
    /// [`write_field`](super::write_field).
    pub fn write(&self, header: &mut [u8], value: u128) -> bool {
        let Some(at) = self.offset(header) else { return false };
        write_bits(header, usize::from(at), usize::from(self.width()), value);
        true
    }
}

/// The number in the `width` bits from bit `at` on.
pub(super) fn read_bits(bytes: &[u8], at: usize, width: usize) -> u128 {
    let (first, end) = (at / 8, (at + width).div_ceil(8));
    if end - first > 16 {
        // 128 bits that do not start at a byte boundary: no protocol has such a field.
        return 0;
    }
    let all = bytes[first..end].iter().fold(0_u128, |all, byte| all << 8 | u128::from(*byte));
    let all = all >> (end * 8 - at - width);
    if width >= 128 { all } else { all & ((1 << width) - 1) }
}

/// Writes a number into the `width` bits from bit `at` on.
pub(super) fn write_bits(bytes: &mut [u8], at: usize, width: usize, value: u128) {
    for bit in 0..width {
        let (byte, mask) = ((at + bit) / 8, 0x80 >> ((at + bit) % 8));
        if value >> (width - 1 - bit) & 1 == 1 { bytes[byte] |= mask } else { bytes[byte] &= !mask }
    }
}
