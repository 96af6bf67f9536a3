//! Step 8, *deliver*: phone numbers, and how many messages a text is.

/// The most segments of one text: more is a letter, not a message, and costs as many messages.
pub const MOST_SEGMENTS: usize = 10;

/// Characters of GSM 03.38 that take one place (3GPP TS 23.038, 6.2.1); the escape is not among them.
const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";
/// Those that take two: an escape and one more (3GPP TS 23.038, 6.2.1.1).
const EXTENDED: &str = "\u{c}^{}\\[~]|€";

/// Digits that follow a country's code (national numbering plans by ITU-T E.164): country code, least, most. Only countries
/// whose plans are settled; every other number is held to E.164 alone.
const NATIONAL: [(&str, usize, usize); 32] = [
    ("1", 10, 10),
    ("20", 8, 10),
    ("27", 9, 9),
    ("30", 10, 10),
    ("32", 8, 9),
    ("33", 9, 9),
    ("34", 9, 9),
    ("351", 9, 9),
    ("353", 7, 9),
    ("36", 8, 9),
    ("370", 8, 8),
    ("371", 8, 8),
    ("380", 9, 9),
    ("40", 9, 9),
    ("420", 9, 9),
    ("421", 9, 9),
    ("44", 7, 10),
    ("45", 8, 8),
    ("48", 9, 9),
    ("52", 10, 11),
    ("55", 10, 11),
    ("61", 9, 9),
    ("65", 8, 8),
    ("7", 10, 10),
    ("81", 9, 10),
    ("852", 8, 8),
    ("880", 8, 10),
    ("90", 10, 10),
    ("91", 10, 10),
    ("92", 9, 10),
    ("971", 8, 9),
    ("977", 8, 10),
];

/// How a text is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// GSM 03.38: 160 places in one segment, 153 in each of several.
    Gsm,
    /// UCS-2: 70 places, or 67.
    Ucs2,
}

/// What a text comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// How it is sent.
    pub encoding: Encoding,
    /// How many messages it is.
    pub count: usize,
}

/// How many messages a text is: a character is never cut in two.
pub fn segments(text: &str) -> Segments {
    let gsm: Option<Vec<usize>> = text.chars().map(gsm_places).collect();
    match gsm {
        Some(places) => Segments { encoding: Encoding::Gsm, count: count(&places, 160, 153) },
        None => {
            let places: Vec<usize> = text.chars().map(char::len_utf16).collect();
            Segments { encoding: Encoding::Ucs2, count: count(&places, 70, 67) }
        }
    }
}

/// Checks a phone number: E.164, and the length that its country has. It is asked when a job is made and when it is sent to.
///
/// # Errors
/// Says what was expected, never the number itself.
pub fn check_number(number: &str) -> Result<(), String> {
    check_e164(number)?;
    let digits = number.trim_start_matches('+');
    let Some((code, least, most)) = NATIONAL.iter().find(|(code, ..)| digits.starts_with(code)) else { return Ok(()) };
    let national = digits.len() - code.len();
    if (*least..=*most).contains(&national) {
        return Ok(());
    }
    let allowed = if least == most { format!("{least}") } else { format!("{least} to {most}") };
    Err(format!("a phone number of +{code} has {allowed} digits behind that; found {national}"))
}

/// Checks a phone number against the E.164 pattern alone: what a stored one must satisfy, whatever is known of countries.
///
/// # Errors
/// Says what was expected, never the number itself.
pub fn check_e164(number: &str) -> Result<(), String> {
    let expected =
        "a phone number is `+`, country code and number, 8 to 15 digits in all, such as +12025550100 (E.164)";
    let digits = number.strip_prefix('+').ok_or(expected)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{expected}; found a character that is not a digit"));
    }
    if !(8..=15).contains(&digits.len()) || digits.starts_with('0') {
        return Err(format!("{expected}; found {} digits", digits.len()));
    }
    Ok(())
}

fn gsm_places(c: char) -> Option<usize> {
    match c {
        _ if BASIC.contains(c) => Some(1),
        _ if EXTENDED.contains(c) => Some(2),
        _ => None,
    }
}

fn count(places: &[usize], single: usize, each: usize) -> usize {
    if places.iter().sum::<usize>() <= single {
        return 1;
    }
    let (mut count, mut filled) = (1, 0);
    for place in places {
        if filled + place > each {
            (count, filled) = (count + 1, 0);
        }
        filled += place;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn segments_are_counted_as_gateways_bill_them() {
        let n = |c: &str, n: usize| c.repeat(n);
        for (text, encoding, expected) in [
            (String::new(), Encoding::Gsm, 1),
            (n("a", 160), Encoding::Gsm, 1),
            (n("a", 161), Encoding::Gsm, 2),
            (n("a", 306), Encoding::Gsm, 2),
            (n("a", 307), Encoding::Gsm, 3),
            (n("€", 80), Encoding::Gsm, 1),
            (n("€", 81), Encoding::Gsm, 2),
            // 152 places and an escape that does not fit: the pair goes into the next segment.
            (format!("{}€{}", n("a", 152), n("a", 152)), Encoding::Gsm, 3),
            (format!("{}€{}", n("a", 151), n("a", 153)), Encoding::Gsm, 2),
            ("@£$¥èéùìòÇØøÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ¤¡ÄÖÑÜ§¿äöñüà".into(), Encoding::Gsm, 1),
            (n("ж", 70), Encoding::Ucs2, 1),
            (n("ж", 71), Encoding::Ucs2, 2),
            (n("ж", 134), Encoding::Ucs2, 2),
            (n("ж", 135), Encoding::Ucs2, 3),
            (format!("{}ж", n("a", 69)), Encoding::Ucs2, 1),
            (n("😀", 35), Encoding::Ucs2, 1),
            (n("😀", 36), Encoding::Ucs2, 2),
            // 33 pairs are 66 places: the 34th does not fit into 67.
            (n("😀", 67), Encoding::Ucs2, 3),
            ("ç".into(), Encoding::Ucs2, 1),
            ("`".into(), Encoding::Ucs2, 1),
        ] {
            assert_eq!(segments(&text), Segments { encoding, count: expected }, "{text}");
        }
        assert_eq!(BASIC.chars().count(), 127, "128 places less the escape");
        assert_eq!(EXTENDED.chars().count(), 10);
    }

    #[test]
    fn a_number_has_the_length_of_its_country() {
        for good in ["+447700900123", "+12025550100", "+919876543210", "+33639980000", "+46701740000", "+4917139200000"]
        {
            assert_eq!(check_number(good), Ok(()), "{good}");
        }
        for (bad, says) in [
            ("447700900123", "E.164"),
            ("+44 7700 900123", "not a digit"),
            ("+4477", "found 4 digits"),
            ("+0447700900123", "E.164"),
            ("+44770090012345678", "found 17 digits"),
            ("+44x700900123", "not a digit"),
            ("+4477009001234", "+44 has 7 to 10 digits behind that; found 11"),
            ("+1202555010", "+1 has 10 digits behind that; found 9"),
            ("+91987654321", "+91 has 10 digits behind that; found 9"),
            ("+٤٤٧٧٠٠٩٠٠١٢٣", "not a digit"),
        ] {
            let error = check_number(bad).unwrap_err();
            assert!(error.contains(says), "{bad}: {error}");
            assert!(!error.contains("7700900") && !error.contains("98765"), "{error}");
        }
    }

    #[test]
    fn no_code_of_the_table_begins_another() {
        for (code, least, most) in NATIONAL {
            assert!(least <= most && code.len() + most <= 15);
            assert!(NATIONAL.iter().filter(|(other, ..)| other.starts_with(code)).count() == 1, "{code}");
        }
    }

    proptest! {
        #[test]
        fn a_longer_text_is_never_fewer_messages(text in "\\PC{0,200}", more in "[a-zж€😀]{1,5}") {
            prop_assert!(segments(&text).count <= segments(&(text.clone() + &more)).count);
        }
    }
}
