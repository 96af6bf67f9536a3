//! The rules that can be taken away, each by altering what a real function is given or what is done with its answer.

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// Which rules hold.
        #[derive(Clone, Copy, Debug)]
        pub struct Rules { $($(#[doc = $doc])+ pub $name: bool),* }

        impl Rules {
            /// Their names.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The system as it is.
            pub const ALL: Rules = Rules { $($name: true),* };

            /// Takes one away.
            pub fn without(mut self, rule: &str) -> Self {
                match rule {
                    $(stringify!($name) => self.$name = false,)*
                    _ => panic!("no rule `{rule}`: the rules are {:?}", Self::NAMES),
                }
                self
            }
        }
    };
}

rules! {
    // Dispatch
    /// A job advances only after its run is in the queue.
    enqueue_first,
    /// A job advances past a skip only after its row is written.
    skip_row_first,
    /// An advance moves a job only from where it was read, by version and state.
    advance_compared,
    /// A skip looks at the row that is there.
    conditional_skip,
    /// A job passes no more than the row says that it found.
    row_bounds_range,
    // Changes
    /// A change keeps a firing that is due and not enqueued.
    owed_stays_owed,
    /// A change knows what was sent ahead: it comes to that again.
    sent_ahead_known,
    /// A change voids from its boundary on, not everything.
    void_from_boundary,
    /// Generations go on counting when a job is created again.
    generation_kept,
    // Void
    /// A void message gets a row before it is deleted.
    void_gets_row,
    /// Begin over a void row needs a generation that decides it.
    void_gen_compared,
    /// A job that is done does not void its messages.
    done_is_live,
    /// A void row keeps the back-off of its run.
    void_keeps_back_off,
    // Screen
    /// The messages of a paused job are put back.
    pause_keeps,
    /// A message that is not due yet is put back.
    not_due_waits,
    /// The screen reads the job consistently.
    consistent_read,
    // Begin and record
    /// Begin waits for the end of a back-off.
    back_off,
    /// A row is written only over the one that was looked at.
    row_compared,
    /// A row's lease outlives its call: only a frozen holder is overtaken.
    lease_outlives_call,
    /// Begin without an attempt left ends the run as dead.
    last_attempt_dies,
    /// An unknown outcome is not tried again where the gateway would not drop the repeat.
    unknown_is_held,
    /// The owner token fences a record.
    fenced_record,
    /// The owner token fences who gives an attempt back.
    fenced_give_up,
    /// A known outcome is recorded even after the message's lease was lost.
    known_outcome_recorded,
    /// A delivery that finds the run dead or indeterminate sends the dead letter again.
    letter_again,
}
