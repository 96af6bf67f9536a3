use super::*;
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;

const THREADS: usize = 4;
const LINES_EACH: usize = 2_500;

/// What the reader does next.
#[derive(Clone, Copy)]
enum Does {
    /// Makes room after so many milliseconds, and takes so many bytes at most.
    Takes(u64, usize),
    StandsStill,
    Fails(io::ErrorKind),
}
use Does::{Fails, StandsStill, Takes};

const TAKES_ALL: Does = Takes(0, usize::MAX);

/// A reader that does as it is told, one piece after the other.
#[derive(Default)]
struct Script {
    does: VecDeque<Does>,
    read: Vec<u8>,
    /// The length of each piece it was given.
    pieces: Vec<usize>,
    /// How long it was waited for at most, each time.
    patience: Vec<u64>,
}

impl Out for Script {
    fn wait(&mut self, at_most: Duration) -> Option<Duration> {
        self.patience.push(at_most.as_millis() as u64);
        match self.does.front() {
            Some(Takes(ms, _)) if Duration::from_millis(*ms) <= at_most => Some(Duration::from_millis(*ms)),
            Some(Fails(_)) => Some(Duration::ZERO),
            Some(Takes(..) | StandsStill) | None => {
                self.does.pop_front();
                None
            }
        }
    }

    fn put(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.pieces.push(piece.len());
        match self.does.pop_front() {
            Some(Takes(_, most)) => {
                let taken = most.min(piece.len());
                self.read.extend_from_slice(&piece[..taken]);
                Ok(taken)
            }
            Some(Fails(kind)) => Err(kind.into()),
            Some(StandsStill) | None => panic!("nothing is written where there is no room"),
        }
    }
}

fn lines(does: &[Does]) -> Lines<Script> {
    Lines { out: Script { does: does.iter().copied().collect(), ..Script::default() }, is_cut: false }
}

fn read(lines: &Lines<Script>) -> &str {
    std::str::from_utf8(&lines.out.read).unwrap()
}

/// A line of so many bytes, its end included.
fn line(bytes: usize) -> Vec<u8> {
    let mut line = vec![b'x'; bytes - 1];
    line.push(b'\n');
    line
}

#[test]
fn an_event_is_written_in_pieces_that_a_pipe_takes_whole() {
    let mut lines = lines(&[TAKES_ALL; 5]);
    assert!(lines.write(&line(4_096)));
    assert!(lines.write(&line(10_000)));
    assert!(lines.write(b""));
    assert_eq!(lines.out.pieces, [4_096, 4_096, 4_096, 1_808]);
    assert_eq!(lines.out.read.len(), 14_096);
}

#[test]
fn nothing_is_waited_for_before_an_event_is_begun() {
    let mut lines = lines(&[StandsStill, StandsStill, TAKES_ALL]);
    assert!(!lines.write(b"one\n"));
    assert!(!lines.write(&line(10_000)));
    assert!(lines.write(b"three\n"));
    assert_eq!(lines.out.patience, [0, 0, 0]);
    assert_eq!(read(&lines), "three\n");
}

#[test]
fn the_rest_of_an_event_is_waited_for_no_longer_than_its_patience_in_all() {
    let mut lines =
        lines(&[TAKES_ALL, Takes(20, usize::MAX), Takes(30, usize::MAX), TAKES_ALL, Takes(1, usize::MAX), TAKES_ALL]);
    assert!(!lines.write(&line(20_000)));
    assert_eq!(lines.out.patience, [0, 50, 30, 0, 0]);
    assert_eq!(lines.out.read.len(), 4 * PIECE);
    assert!(lines.write(b"next\n"));
    assert!(read(&lines).ends_with("x\nnext\n"));
}

#[test]
fn after_a_line_that_was_cut_the_next_one_that_is_written_begins_a_line() {
    let mut lines = lines(&[Takes(0, 3), StandsStill, StandsStill, Takes(0, 1), StandsStill, TAKES_ALL, TAKES_ALL]);
    assert!(!lines.write(b"first\n"));
    assert!(!lines.write(b"second\n"), "no room at all: still cut");
    assert!(!lines.write(b"third\n"), "room for a line end only: still cut");
    assert!(lines.write(b"fourth\n"));
    assert!(lines.write(b"fifth\n"));
    assert_eq!(read(&lines), "fir\n\nfourth\nfifth\n");
}

#[test]
fn what_is_taken_in_part_is_gone_on_with() {
    let mut lines = lines(&[Takes(0, 2), Fails(io::ErrorKind::Interrupted), Takes(40, 3), TAKES_ALL]);
    assert!(lines.write(b"abcdefgh\n"));
    assert_eq!(read(&lines), "abcdefgh\n");
    assert_eq!(lines.out.pieces, [9, 7, 7, 4]);
}

#[test]
fn an_event_whose_write_fails_is_lost_and_nothing_else() {
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::BrokenPipe, io::ErrorKind::WouldBlock] {
        let mut lines = lines(&[Fails(kind), TAKES_ALL, Takes(0, 0), TAKES_ALL]);
        assert!(!lines.write(b"one\n"));
        assert!(lines.write(b"two\n"));
        assert!(!lines.write(b"three\n"), "nothing was taken");
        assert!(lines.write(b"four\n"));
        assert_eq!(read(&lines), "two\nfour\n");
    }
}

/// Logs from several threads at once; how many lines were written.
fn log_from_threads<O: Out + Send>(writer: &LogWriter<O>) -> usize {
    let log = |thread: usize| {
        let text = |n: usize| format!("INFO thread {thread} line {n} {}\n", "y".repeat(n % 200));
        (0..LINES_EACH).filter(|n| writer.log(text(*n).as_bytes())).count()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || log(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

fn is_whole(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let ["INFO", "thread", _, "line", n, filling] = words[..] else { return false };
    n.parse::<usize>().is_ok_and(|n| filling == "y".repeat(n % 200))
}

/// Without a way of its own as well: one process alone never waits for a pipe that has room for a piece.
#[test]
fn a_pipe_that_nobody_reads_holds_up_no_thread_and_shows_whole_lines_afterwards() {
    for has_own_way in [true, false] {
        let (mut reader, pipe) = io::pipe().unwrap();
        let shared = |pipe| Outlet { out: Box::new(pipe), clock: SystemClock::new() };
        let writer = LogWriter::new(if has_own_way { Outlet::to(pipe) } else { shared(pipe) });
        let written = log_from_threads(&writer);
        assert!((1..THREADS * LINES_EACH).contains(&written), "{written}");
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.ends_with('\n') && text.lines().all(is_whole), "{text}");
        assert_eq!(text.lines().count(), written);
    }
}

#[test]
fn an_event_cut_by_a_full_pipe_spoils_no_line_but_its_own() {
    let (mut reader, pipe) = io::pipe().unwrap();
    let writer = LogWriter::new(Outlet::to(pipe));
    assert!(!writer.log(&line(1 << 21)), "no pipe holds that");
    let mut begun = vec![0; 1 << 21];
    let n = reader.read(&mut begun).unwrap();
    assert!(n >= PIECE && begun[..n].iter().all(|byte| *byte == b'x'));
    assert!(writer.log(b"INFO next\n"));
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(text.trim_start_matches('x') == "\nINFO next\n", "{text}");
}

/// What another process put into the pipe after this one was told that there is room.
#[test]
fn a_pipe_that_others_filled_holds_up_no_write() {
    let (_reader, pipe) = io::pipe().unwrap();
    let mut out = Outlet::to(pipe.try_clone().unwrap());
    let mut others = Outlet::to(pipe);
    while others.wait(Duration::ZERO).is_some() {
        others.put(&[b'z'; PIECE]).unwrap();
    }
    assert_eq!(out.put(b"line\n").unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// To set it where it is shared would make writes of other processes fail.
#[test]
fn the_descriptor_that_others_share_stays_as_it_is() {
    let (_reader, pipe) = io::pipe().unwrap();
    let kept = pipe.try_clone().unwrap();
    let _out = Outlet::to(pipe);
    assert!(!rustix::fs::fcntl_getfl(&kept).unwrap().contains(OFlags::NONBLOCK));
}

/// Both ends of a terminal.
fn terminal() -> (File, File) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap();
    let terminal = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    (screen.into(), terminal.into())
}

#[test]
fn a_terminal_that_nobody_reads_holds_up_no_thread() {
    let (_screen, terminal) = terminal();
    let writer = LogWriter::new(Outlet::to(terminal));
    let written = log_from_threads(&writer);
    assert!((1..THREADS * LINES_EACH).contains(&written), "{written}");
}

#[test]
fn a_terminal_that_is_stopped_holds_up_no_thread_and_goes_on_later() {
    let (ctrl_s, ctrl_q) = (b"\x13", b"\x11");
    let (mut screen, terminal) = terminal();
    let mut settled = Outlet::to(terminal.try_clone().unwrap());
    let writer = LogWriter::new(Outlet::to(terminal));
    screen.write_all(ctrl_s).unwrap();
    // The system hands keys on in a thread of its own.
    while settled.wait(Duration::ZERO).is_some() {
        std::thread::yield_now();
    }
    assert_eq!(log_from_threads(&writer), 0);
    screen.write_all(ctrl_q).unwrap();
    settled.wait(Duration::from_secs(60)).expect("the terminal goes on");
    assert!(writer.log(b"INFO again\n"));
    let mut shown = [0; 64];
    let n = screen.read(&mut shown).unwrap();
    assert_eq!(&shown[..n], b"INFO again\r\n");
}
