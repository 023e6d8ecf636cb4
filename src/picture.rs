//! Picture: an image made small enough for a model to look at.
//!
//! The bytes are user code's: decoding is bounded in pixels and memory, and done one at a time.

use std::io::Cursor;

use image::{DynamicImage, ImageReader, Limits, RgbImage, codecs::jpeg::JpegEncoder, imageops};
use tokio::sync::Semaphore;

/// Bytes of a picture that a model is shown.
pub(crate) const MAX_BYTES: u64 = 256 << 10;

/// Bytes of an image that is made smaller.
pub(crate) const MAX_SOURCE_BYTES: u64 = 20 << 20;

/// Longer side of a picture, in pixels: models see no more of a larger one.
const MAX_SIDE: u32 = 1_568;

/// Longer side of an image that is made smaller, and bytes it may take while it is decoded.
const MAX_SOURCE_SIDE: u32 = 16_384;
const MAX_SOURCE_MEMORY: u64 = 128 << 20;

/// JPEG's usual compromise.
const QUALITY: u8 = 80;

/// Only one is decoded at a time: each may take the memory of all the rest of the server.
static TURN: Semaphore = Semaphore::const_new(1);

/// The image as a JPEG of at most [`MAX_BYTES`]; `None` where it is none that can be decoded within bounds.
pub(crate) async fn shrink(bytes: Vec<u8>) -> Option<Vec<u8>> {
    let _turn = TURN.acquire().await.ok()?;
    let shrinking = tokio::task::spawn_blocking(move || shrink_now(&bytes));
    shrinking.await.ok()?
}

fn shrink_now(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut reader = ImageReader::new(Cursor::new(bytes))
        .with_guessed_format()
        .ok()?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SOURCE_SIDE);
    limits.max_image_height = Some(MAX_SOURCE_SIDE);
    limits.max_alloc = Some(MAX_SOURCE_MEMORY);
    reader.limits(limits);
    let mut image = reader.decode().ok()?;
    if image.width().max(image.height()) > MAX_SIDE {
        image = image.resize(MAX_SIDE, MAX_SIDE, imageops::FilterType::Triangle);
    }
    let mut picture = on_white(&image);
    loop {
        let mut encoded = Vec::new();
        JpegEncoder::new_with_quality(&mut encoded, QUALITY)
            .encode_image(&picture)
            .ok()?;
        if encoded.len() as u64 <= MAX_BYTES {
            return Some(encoded);
        }
        // Noise: half the size is a quarter of the bytes.
        let (width, height) = (picture.width() / 2, picture.height() / 2);
        if width == 0 || height == 0 {
            return None;
        }
        picture = imageops::resize(&picture, width, height, imageops::FilterType::Triangle);
    }
}

/// JPEG knows no transparency; most viewers show it as white.
fn on_white(image: &DynamicImage) -> RgbImage {
    if !image.color().has_alpha() {
        return image.to_rgb8();
    }
    let image = image.to_rgba8();
    let mut flat = RgbImage::new(image.width(), image.height());
    for (from, to) in image.pixels().zip(flat.pixels_mut()) {
        let alpha = u16::from(from.0[3]);
        for (channel, value) in to.0.iter_mut().zip(from.0) {
            let mixed = (u16::from(value) * alpha + 255 * (255 - alpha)) / 255;
            *channel = u8::try_from(mixed).unwrap_or(u8::MAX);
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use image::{ImageFormat, Rgba, RgbaImage};

    use super::*;

    fn png(image: &RgbaImage) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn a_large_image_is_made_to_fit_even_if_it_is_noise() {
        let mut seed = 1_u32;
        let noise = RgbaImage::from_fn(1_200, 900, |_, _| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [a, b, c, _] = seed.to_be_bytes();
            Rgba([a, b, c, 255])
        });
        let shrunk = shrink_now(&png(&noise)).unwrap();
        assert!(shrunk.len() as u64 <= MAX_BYTES);
        assert!(image::load_from_memory(&shrunk).unwrap().width() > 100);
    }

    #[test]
    fn what_is_transparent_is_white() {
        let clear = RgbaImage::from_pixel(10, 10, Rgba([0, 0, 0, 0]));
        let shrunk = image::load_from_memory(&shrink_now(&png(&clear)).unwrap()).unwrap();
        assert!(
            shrunk
                .to_rgb8()
                .pixels()
                .all(|pixel| pixel.0.iter().all(|c| *c > 250))
        );
    }

    #[test]
    fn no_image_and_one_beyond_the_bounds_are_none() {
        assert_eq!(shrink_now(b"GIF89a"), None);
        assert_eq!(shrink_now(b"not an image"), None);
        // Says it has 60,000 x 60,000 pixels.
        let mut header = png(&RgbaImage::new(1, 1));
        header[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
        assert_eq!(shrink_now(&header), None);
    }
}
