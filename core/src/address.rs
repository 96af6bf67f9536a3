//! Step 8, *deliver*: which addresses a job may make a worker call.
//!
//! Whoever can make a job chooses an address that is called from inside the operator's network. What is reachable only
//! there is refused: this host, private networks, the metadata services of clouds. A name is no way round: it is judged by
//! the addresses it stands for, when it is called. What an operator names in an [`AllowList`] is exempt.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use url::{Host, Url};

/// The longest address of a webhook or queue, in bytes.
pub const LONGEST_URL_BYTES: usize = 2_000;

/// Why an address may not be called; none when it may.
pub fn forbidden(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => forbidden_v4(ip),
        IpAddr::V6(ip) => forbidden_v6(ip),
    }
}

/// IANA's registry of special-purpose IPv4 addresses, multicast, and the metadata addresses of clouds.
fn forbidden_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = ip.octets();
    Some(match (a, b, c) {
        // AWS, GCP, Azure and most others; ECS tasks; Alibaba; Azure's host.
        _ if ["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16"]
            .contains(&ip.to_string().as_str()) =>
        {
            "a metadata service"
        }
        (0, ..) => "unspecified",
        (127, ..) => "loopback",
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => "private",
        (100, 64..=127, _) => "carrier-grade NAT",
        (169, 254, _) => "link-local",
        (192, 0, 0) => "reserved for protocols",
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => "for documentation",
        (192, 88, 99) => "a 6to4 relay",
        (198, 18 | 19, _) => "for benchmarks",
        (224..=239, ..) => "multicast",
        (240.., ..) if ip.is_broadcast() => "broadcast",
        (240.., ..) => "reserved",
        _ => return None,
    })
}

/// IANA's registry of special-purpose IPv6 addresses; where one stands for an IPv4 address, that is judged.
fn forbidden_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let s = ip.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    Some(match s {
        _ if ip == "fd00:ec2::254".parse::<Ipv6Addr>().expect("an address") => "a metadata service",
        [0, 0, 0, 0, 0, 0, 0, 0] => "unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        // Compatible, mapped, and translated (SIIT) forms.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            return forbidden_v4(v4(high, low));
        }
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return forbidden_v4(v4(high, low)),
        [0x64, 0xff9b, 1, ..] => "a local NAT64",
        [0x2002, high, low, ..] => return forbidden_v4(v4(high, low)),
        // Teredo: its server, and its client with all bits turned over.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            return forbidden_v4(v4(server_high, server_low)).or(forbidden_v4(v4(!high, !low)));
        }
        // ISATAP.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] if forbidden_v4(v4(high, low)).is_some() => {
            return forbidden_v4(v4(high, low));
        }
        [0x2001, 0x2, 0, ..] => "for benchmarks",
        [0x2001, 0..=0x1ff, ..] => "reserved for protocols",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "for documentation",
        [0xfc00..=0xfdff, ..] => "private",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xfec0..=0xfeff, ..] => "site-local",
        [0xff00..=0xffff, ..] => "multicast",
        [0x100, 0, 0, 0, ..] => "discarded",
        [0x2000..=0x3fff, ..] => return None,
        _ => "outside of what is in use",
    })
}

/// Hosts that may be called whatever their addresses are, also over plain HTTP: `host`, `address`, `host:port`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(Vec<(Host, Option<u16>)>);

impl FromStr for AllowList {
    type Err = String;

    /// Reads names and addresses separated by commas.
    fn from_str(text: &str) -> Result<Self, String> {
        let entry = |entry: &str| {
            let expected = || {
                format!(
                    "`{entry}` is no host: expected names or addresses separated by commas, such as \
                     `hooks.internal,10.0.0.7:8080,[fd00::7]`"
                )
            };
            let (host, port) = match entry.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                    (host, Some(port.parse().map_err(|_| expected())?))
                }
                _ => (entry, None),
            };
            let host = Host::parse(host).map_err(|_| expected())?;
            Ok((normal(host), port))
        };
        let entries = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        entries.map(entry).collect::<Result<_, _>>().map(AllowList)
    }
}

impl AllowList {
    /// Whether an address is named.
    pub fn allows(&self, url: &Url) -> bool {
        let Some(host) = url.host().map(|host| normal(host.to_owned())) else { return false };
        let port = url.port_or_known_default();
        self.0.iter().any(|(allowed, at)| *allowed == host && at.is_none_or(|at| Some(at) == port))
    }
}

/// A name is the same with and without the dot of the root.
fn normal(host: Host) -> Host {
    match host {
        Host::Domain(name) => Host::Domain(name.trim_end_matches('.').to_ascii_lowercase()),
        host => host,
    }
}

/// Reads an address that a job gives, and checks its form: what holds wherever it is called from.
///
/// # Errors
/// Says what was expected, and nothing of the address: it may hold a key.
pub fn read_url(text: &str) -> Result<Url, String> {
    if text.len() > LONGEST_URL_BYTES {
        return Err(format!("the address has {} bytes: {LONGEST_URL_BYTES} are allowed", text.len()));
    }
    let expected = "expected an address such as `https://hooks.example.com/bills`";
    let url = Url::parse(text).map_err(|problem| format!("{expected}: {problem}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(format!("{expected}; only http and https are called"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the address holds a user name or password: sign the requests by a secret instead".into());
    }
    if url.fragment().is_some() {
        return Err("the address holds a `#`, and what follows that is never sent: leave it out".into());
    }
    Ok(url)
}

/// Reads an address and checks that it may be called, as far as that shows without looking its name up.
///
/// # Errors
/// As [`read_url`], and which kind of address is refused.
pub fn check_url(text: &str, allowed: &AllowList) -> Result<Url, String> {
    let url = read_url(text)?;
    if allowed.allows(&url) {
        return Ok(url);
    }
    if url.scheme() != "https" {
        return Err(format!("the address must begin with https://; {EXEMPT}"));
    }
    let why = match url.host() {
        Some(Host::Ipv4(ip)) => forbidden_v4(ip),
        Some(Host::Ipv6(ip)) => forbidden_v6(ip),
        Some(Host::Domain(name)) => forbidden_name(name),
        None => Some("no host"),
    };
    why.map_or(Ok(url), |why| Err(refusal(why)))
}

/// An SQS queue, as its URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueName {
    /// The URL as it was judged, and is to be used: written otherwise it may be read otherwise.
    pub url: String,
    /// Where it is; none where the URL does not say, and the operator's own region is meant.
    pub region: Option<String>,
    /// Its name, without its account.
    pub name: String,
}

/// Reads a queue's URL: `https://sqs.REGION.amazonaws.com/ACCOUNT/NAME`, or one at a host that is allowed, with a path of two
/// parts as well.
///
/// # Errors
/// Says what was expected, and nothing of the URL.
pub fn check_queue_url(text: &str, allowed: &AllowList) -> Result<QueueName, String> {
    let expected = "expected a queue's URL such as `https://sqs.eu-west-1.amazonaws.com/123456789012/bills`";
    let url = read_url(text)?;
    let parts: Vec<&str> = url.path_segments().map(Iterator::collect).unwrap_or_default();
    let [account, name] = parts[..] else { return Err(expected.into()) };
    let is_name =
        (1..=80).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !is_name || account.is_empty() || url.query().is_some() {
        return Err(expected.into());
    }
    if name.ends_with(".fifo") {
        return Err("FIFO queues are not supported: their order is not kept by runs that are retried".into());
    }
    let named = |region| QueueName { url: url.to_string(), region, name: name.to_owned() };
    if allowed.allows(&url) {
        return Ok(named(None));
    }
    let host = url.host_str().unwrap_or_default();
    let region = host
        .strip_suffix(".cn")
        .unwrap_or(host)
        .strip_suffix(".amazonaws.com")
        .and_then(|host| host.strip_prefix("sqs.").or_else(|| host.strip_prefix("sqs-fips.")));
    let is_region =
        |region: &&str| !region.is_empty() && region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_account = account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit());
    let is_plain = url.port().is_none() && url.scheme() == "https";
    match region.filter(is_region) {
        Some(region) if is_account && is_plain => Ok(named(Some(region.to_owned()))),
        _ => Err(format!("{expected}; {EXEMPT}")),
    }
}

/// Why a call is refused, in words.
pub fn refusal(why: &str) -> String {
    format!("the address is not called, it is {why}; {EXEMPT}")
}

const EXEMPT: &str = "an operator can exempt its host by PUNCTUAL_WEBHOOK_ALLOW";

/// Names that stand for this host or network by their own rules (RFC 6761, RFC 6762, RFC 8375, ICANN's `internal`).
fn forbidden_name(name: &str) -> Option<&'static str> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    match last {
        "localhost" => Some("loopback"),
        "local" | "internal" | "localdomain" => Some("a name of a private network"),
        _ if name == "home.arpa" || name.ends_with(".home.arpa") => Some("a name of a private network"),
        _ if !name.contains('.') => Some("a name without a domain"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_public_addresses_may_be_called() {
        for (kind, addresses) in [
            (
                "loopback",
                "127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1 ::127.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 2002:7f00:1::",
            ),
            ("unspecified", "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0 64:ff9b::"),
            (
                "private",
                "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fc00::1 fdff::1 ::ffff:10.1.2.3 64:ff9b::10.0.0.1 2002:a00:1::1 2a00::5efe:10.0.0.1",
            ),
            ("carrier-grade NAT", "100.64.0.1 100.127.255.255 ::ffff:100.64.0.1"),
            ("link-local", "169.254.0.1 169.254.255.255 fe80::1 febf::1"),
            (
                "a metadata service",
                "169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16 fd00:ec2::254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe",
            ),
            ("site-local", "fec0::1"),
            ("multicast", "224.0.0.1 239.255.255.255 ff02::1"),
            ("broadcast", "255.255.255.255"),
            ("reserved", "240.0.0.1 255.255.255.254"),
            ("reserved for protocols", "192.0.0.8 2001:1::1 2001:10::1 2001:20::1"),
            ("for documentation", "192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1"),
            ("for benchmarks", "198.18.0.1 198.19.255.255 2001:2::1"),
            ("a 6to4 relay", "192.88.99.1"),
            ("a local NAT64", "64:ff9b:1::1"),
            ("discarded", "100::1"),
            // Teredo of 10.0.0.1 behind a public server, and behind a private one.
            ("private", "2001:0:4136:e378:8000:63bf:f5ff:fffe 2001:0:a00:1:8000:63bf:3fff:fdd2"),
            ("outside of what is in use", "4000::1 5f00::1 200::1"),
        ] {
            for address in addresses.split(' ') {
                assert_eq!(forbidden(address.parse().unwrap()), Some(kind), "{address}");
            }
        }
        for public in "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 169.253.1.1 192.0.1.1 223.255.255.255 2606:4700::1111 \
                       2a00:1450::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1 2001:200::1 2a00::5efe:8.8.8.8"
            .split(' ')
        {
            assert_eq!(forbidden(public.parse().unwrap()), None, "{public}");
        }
    }

    #[test]
    fn an_address_is_judged_as_it_will_be_read() {
        let none = AllowList::default();
        for (url, why) in [
            ("https://127.0.0.1/", "loopback"),
            ("https://2130706433/", "loopback"),
            ("https://0x7f000001/", "loopback"),
            ("https://0177.0.0.1/", "loopback"),
            ("https://127.1/", "loopback"),
            ("https://①②⑦.0.0.1/", "loopback"),
            ("https://127.0.0.1./", "loopback"),
            ("https://[::1]/", "loopback"),
            ("https://[::ffff:127.0.0.1]/", "loopback"),
            ("https://[::ffff:7f00:1]/", "loopback"),
            ("https://localhost/", "loopback"),
            ("https://LOCALHOST./", "loopback"),
            ("https://a.localhost/", "loopback"),
            ("https://0/", "unspecified"),
            ("https://169.254.169.254/latest/meta-data", "a metadata service"),
            ("https://0xA9FEA9FE/", "a metadata service"),
            ("https://metadata.google.internal/", "private network"),
            ("https://printer.local/", "private network"),
            ("https://intranet/", "without a domain"),
            ("http://hooks.example.com/", "must begin with https"),
            ("ftp://hooks.example.com/", "only http and https"),
            ("hooks.example.com", "expected an address"),
            ("https://", "expected an address"),
            ("https://user:s3cr3t@hooks.example.com/", "user name or password"),
            ("https://hooks.example.com@127.0.0.1/", "user name or password"),
            ("https://hooks.example.com/#x", "never sent"),
            ("https://256.0.0.1/", "expected an address"),
        ] {
            let error = check_url(url, &none).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("s3cr3t") && !error.contains("meta-data"), "{error}");
        }
        for url in ["https://hooks.example.com/a?b=c", "https://8.8.8.8:8443/", "https://bücher.example/"] {
            assert!(check_url(url, &none).is_ok(), "{url}");
        }
        assert!(check_url(&format!("https://a.example/{}", "x".repeat(2_000)), &none).is_err());
    }

    proptest! {
        /// Whatever way an IPv4 address is written, it is judged as itself.
        #[test]
        fn no_notation_changes_what_an_address_is(bits: u32, tail: u16) {
            let v4 = Ipv4Addr::from(bits);
            let [a, b, c, d] = v4.octets();
            let (high, low) = ((bits >> 16) as u16, bits as u16);
            let expected = forbidden(v4.into());
            for v6 in [
                v4.to_ipv6_mapped(),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, tail, 0, 0, 0, tail),
                Ipv6Addr::new(0x2001, 0, 0x0808, 0x0808, tail, tail, !high, !low),
            ] {
                prop_assert_eq!(forbidden(v6.into()), expected, "{}", v6);
                let url = format!("https://[{v6}]/");
                prop_assert_eq!(check_url(&url, &AllowList::default()).is_err(), expected.is_some(), "{}", url);
            }
            for host in [
                format!("{a}.{b}.{c}.{d}"),
                format!("{bits}"),
                format!("{bits:#x}"),
                format!("0{bits:o}"),
                format!("{a:#x}.0{b:o}.{}", (u32::from(c) << 8) | u32::from(d)),
                format!("{a}.{}", bits & 0xff_ffff),
            ] {
                let url = format!("https://{host}/");
                prop_assert_eq!(check_url(&url, &AllowList::default()).is_err(), expected.is_some(), "{}", url);
            }
        }

        #[test]
        fn no_text_makes_the_check_panic(text in "\\PC{0,60}") {
            let _ = check_url(&text, &AllowList::default());
            let _ = check_url(&format!("https://{text}"), &AllowList::default());
            let _ = check_queue_url(&format!("https://{text}"), &AllowList::default());
            let _ = text.parse::<AllowList>();
        }
    }

    #[test]
    fn a_queue_is_named_by_its_url() {
        let none = AllowList::default();
        let read = |url: &str| check_queue_url(url, &none).map(|queue| (queue.region.unwrap_or_default(), queue.name));
        for (url, region) in [
            ("https://sqs.eu-west-1.amazonaws.com/123456789012/bills", "eu-west-1"),
            ("https://sqs-fips.us-gov-west-1.amazonaws.com/123456789012/bills", "us-gov-west-1"),
            ("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/bills", "cn-north-1"),
        ] {
            assert_eq!(read(url), Ok((region.into(), "bills".into())));
        }
        for url in [
            "https://sqs.eu-west-1.amazonaws.com.evil.example/123456789012/bills",
            "https://evil.example/sqs.eu-west-1.amazonaws.com/bills",
            "https://sqs.a.b.amazonaws.com/123456789012/bills",
            "https://sqs..amazonaws.com/123456789012/bills",
            "http://sqs.eu-west-1.amazonaws.com/123456789012/bills",
            "https://sqs.eu-west-1.amazonaws.com:444/123456789012/bills",
            "https://sqs.eu-west-1.amazonaws.com/1234/bills",
            "https://sqs.eu-west-1.amazonaws.com/123456789012/x/bills",
            "https://sqs.eu-west-1.amazonaws.com/123456789012/bills?Action=DeleteQueue",
            "https://sqs.eu-west-1.amazonaws.com/123456789012/",
            "https://sqs.eu-west-1.amazonaws.com/123456789012/b%20s",
            "http://127.0.0.1:4566/000000000000/bills",
        ] {
            assert!(read(url).unwrap_err().contains("expected a queue's URL"), "{url}");
        }
        assert!(read("https://sqs.eu-west-1.amazonaws.com/123456789012/bills.fifo").unwrap_err().contains("FIFO"));
        let allowed = "127.0.0.1:4566".parse().unwrap();
        let url = "http://127.0.0.1:4566/000000000000/bills";
        let local = check_queue_url(url, &allowed).unwrap();
        assert_eq!(local, QueueName { url: url.into(), region: None, name: "bills".into() });
        for path in ["bills", "/bills", "000000000000/", "admin/000000000000/bills", "000000000000/x/bills"] {
            let error = check_queue_url(&format!("http://127.0.0.1:4566/{path}"), &allowed).unwrap_err();
            assert!(error.contains("expected a queue's URL"), "{path}: {error}");
        }
    }

    #[test]
    fn a_queue_is_sent_to_by_the_url_that_was_judged() {
        let judged = "https://sqs.eu-west-1.amazonaws.com/123456789012/bills";
        for written in [
            judged,
            "HTTPS://SQS.eu-west-1.AMAZONAWS.com:443/123456789012/bills",
            "https://sqs.eu-west-1.amazonaws.com/123456789012/x/../bills",
            "https:\\\\sqs.eu-west-1.amazonaws.com\\123456789012\\bills",
            " https://sqs.eu-west-1.amazonaws.com/1234567\n89012/bills\t",
        ] {
            let queue = check_queue_url(written, &AllowList::default()).unwrap();
            assert_eq!((queue.url.as_str(), queue.name.as_str()), (judged, "bills"), "{written}");
        }
    }

    #[test]
    fn what_an_operator_names_is_exempt_and_nothing_else() {
        let allowed: AllowList = "hooks.internal, 127.0.0.1:8080,[::1],10.0.0.7".parse().unwrap();
        for url in [
            "http://hooks.internal/",
            "https://HOOKS.internal.:444/",
            "http://127.0.0.1:8080/x",
            "http://0x7f.1:8080/",
            "http://[::1]:99/",
            "http://10.0.0.7",
        ] {
            assert!(check_url(url, &allowed).is_ok(), "{url}");
        }
        for url in [
            "http://127.0.0.1:8081/",
            "http://127.0.0.1/",
            "http://a.hooks.internal/",
            "http://10.0.0.8/",
            "http://[::2]/",
        ] {
            assert!(check_url(url, &allowed).is_err(), "{url}");
        }
        assert_eq!("".parse(), Ok(AllowList::default()));
        for bad in ["a b", "10.0.0.7:x", "http://a.example", "a:99999"] {
            assert!(bad.parse::<AllowList>().unwrap_err().contains("hooks.internal"), "{bad}");
        }
    }
}
