//! Text inside HTML, and the drawings: every text that could come from a file name is escaped here.

use std::fmt::{self, Write as _};

use crate::{
    document::{DeviceMap, FileMap},
    extent_map::{DEVICE_SLICES, FILE_SLICES},
    output::Count,
};

/// Text as HTML content or attribute value.
pub(super) struct Text<T>(pub(super) T);

impl<T: fmt::Display> fmt::Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);
        impl fmt::Write for Escape<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for character in text.chars() {
                    match character {
                        '&' => self.0.write_str("&amp;")?,
                        '<' => self.0.write_str("&lt;")?,
                        '>' => self.0.write_str("&gt;")?,
                        '"' => self.0.write_str("&quot;")?,
                        '\'' => self.0.write_str("&#39;")?,
                        other => self.0.write_char(other)?,
                    }
                }
                Ok(())
            }
        }
        write!(Escape(f), "{}", self.0)
    }
}

/// Upper limits (inclusive) of the colour classes for fragments in a slice; `f0` is a hole.
const CLASSES: [(u64, &str); 4] = [(1, "f1"), (3, "f2"), (7, "f3"), (31, "f4")];

/// The text of the legend, class by class.
pub(super) const LEGEND: [(&str, &str); 6] = [
    ("f1", "1 fragment: contiguous"),
    ("f2", "2–3"),
    ("f3", "4–7"),
    ("f4", "8–31"),
    ("f5", "32 or more"),
    ("f0", "hole"),
];

fn class(fragments: u64) -> &'static str {
    match fragments {
        0 => "f0",
        n => CLASSES
            .iter()
            .find(|(limit, _)| n <= *limit)
            .map_or("f5", |(_, class)| class),
    }
}

const COLUMNS: usize = 32;
const CELL: usize = 16;
const _: () = assert!((FILE_SLICES as usize).is_multiple_of(COLUMNS));

/// A grid of cells in reading order, one for each slice of the file.
pub(super) fn grid(out: &mut String, label: &str, slices: &[u64]) -> fmt::Result {
    let rows = slices.len().div_ceil(COLUMNS).max(1);
    write!(
        out,
        r#"<svg class="map" role="img" viewBox="0 0 {} {}"><title>{}</title>"#,
        COLUMNS * CELL,
        rows * CELL,
        Text(label)
    )?;
    for (n, fragments) in slices.iter().enumerate() {
        let (x, y) = (n % COLUMNS * CELL, n / COLUMNS * CELL);
        write!(
            out,
            r#"<rect class="{}" x="{}" y="{}" width="14" height="14" rx="2.5"/>"#,
            class(*fragments),
            x + 1,
            y + 1
        )?;
    }
    out.push_str("</svg>\n");
    Ok(())
}

/// A bar over a stretch of the device, darker where more of it belongs to the file.
pub(super) fn device_bar(out: &mut String, label: &str, shares: &[u16]) -> fmt::Result {
    let width = 512.0 / DEVICE_SLICES as f64;
    write!(
        out,
        r#"<svg class="device" role="img" viewBox="0 0 512 14" preserveAspectRatio="none"><title>{}</title><rect class="off" width="512" height="14" rx="2.5"/>"#,
        Text(label)
    )?;
    let mut n = 0;
    while n < shares.len() {
        // Neighbours that look the same are one rectangle: no seams, and a smaller page.
        let same = shares[n..]
            .iter()
            .take_while(|share| **share == shares[n])
            .count();
        if shares[n] > 0 {
            write!(
                out,
                r#"<rect class="on" x="{:.2}" width="{:.2}" height="14" fill-opacity="{:.2}"/>"#,
                n as f64 * width,
                same as f64 * width,
                (f64::from(shares[n]) / 1000.0).max(0.12)
            )?;
        }
        n += same;
    }
    out.push_str("</svg>\n");
    Ok(())
}

/// Write the views of one file, before and (where known) after.
pub(super) fn file_map(out: &mut String, map: &FileMap) -> fmt::Result {
    let name = map.path.to_path().unwrap_or_default();
    write!(
        out,
        "<article class=\"card\"><h4>{}</h4>\n<p class=\"quiet\">{}, each cell is {} of it</p>\n<div class=\"maps\">\n",
        Text(crate::output::Name(&name)),
        units::Bytes(map.size_bytes),
        units::Bytes(map.slice_bytes)
    )?;
    let views = [
        (
            "Before",
            Some(map.extents_before),
            &map.before,
            map.device.as_ref().map(|d| &d.before),
        ),
        (
            "After",
            map.extents_after,
            &map.after,
            map.device.as_ref().map(|d| &d.after),
        ),
    ];
    for (when, extents, slices, device) in views {
        if slices.is_empty() {
            continue;
        }
        writeln!(
            out,
            "<figure><figcaption><b>{when}</b>: {}</figcaption>",
            extents.map_or_else(
                || "as planned".to_owned(),
                |n| crate::output::counted(n, "extent", "extents")
            )
        )?;
        grid(out, &describe(when, slices), slices)?;
        if let (Some(shares), Some(stretch)) = (device, &map.device) {
            device_bar(out, &describe_device(when, stretch), shares)?;
        }
        out.push_str("</figure>\n");
    }
    out.push_str("</div></article>\n");
    Ok(())
}

/// The grid in words, for readers who cannot see it.
fn describe(when: &str, slices: &[u64]) -> String {
    let with_data = slices.iter().filter(|n| **n > 0).count() as u64;
    let broken = slices.iter().filter(|n| **n > 1).count() as u64;
    let most = slices.iter().copied().max().unwrap_or(0);
    format!(
        "{when}: {} of {} slices with data are in more than one fragment, at most {} in one slice",
        Count(broken),
        Count(with_data),
        Count(most)
    )
}

fn describe_device(when: &str, device: &DeviceMap) -> String {
    format!(
        "{when}: where the file lies on {} of the device, from byte {}",
        units::Bytes(device.len_bytes),
        device.start_bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_markup() {
        let text = Text("<script>alert('x' & \"y\")</script>").to_string();
        assert_eq!(
            text,
            "&lt;script&gt;alert(&#39;x&#39; &amp; &quot;y&quot;)&lt;/script&gt;"
        );
    }

    #[test]
    fn every_count_has_a_colour_of_the_legend() {
        for (fragments, expected) in [
            (0, "f0"),
            (1, "f1"),
            (2, "f2"),
            (3, "f2"),
            (4, "f3"),
            (8, "f4"),
            (31, "f4"),
            (32, "f5"),
            (u64::MAX, "f5"),
        ] {
            assert_eq!(class(fragments), expected, "{fragments}");
            assert!(LEGEND.iter().any(|(class, _)| *class == expected));
        }
    }

    #[test]
    fn drawings_are_well_formed_for_any_length() {
        for n in [0, 1, 31, 32, 33, 256] {
            let mut out = String::new();
            grid(&mut out, "label", &vec![3; n]).unwrap();
            assert_eq!(out.matches("<rect").count(), n);
            assert!(out.ends_with("</svg>\n"));
            let mut out = String::new();
            device_bar(&mut out, "label", &vec![500; n]).unwrap();
            assert_eq!(out.matches("<rect").count(), 1 + usize::from(n > 0));
        }
    }
}
