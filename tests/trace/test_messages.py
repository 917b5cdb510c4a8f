"""Messages between processes and threads: pairs of send and receive."""

from tests.trace.machines import Recorder, process
from tracellm.trace import names
from tracellm.trace.messages import link
from tracellm.trace.model import Span, Trace


def trace_of(*recorders: Recorder) -> Trace:
    """Return the trace of these processes."""
    processes, spans = process(recorders)
    return Trace(spans, processes)


def paired(trace: Trace) -> list[tuple[Span, Span | None]]:
    """Return the messages as pairs, for comparisons."""
    return [(message.send, message.receive) for message in trace.messages]


def test_a_message_is_known_by_its_id():
    """Send and receive with the same id are a pair, and messages are in the order of their sends."""
    main, engine = Recorder(1), Recorder(2, "EngineCore_0")
    out = main.send("ADD 0", 10, 20)
    second = main.send("ADD 1", 30, 40)
    back = engine.send("OUTPUTS 0 1.5", 100, 110)
    late, arrived = engine.receive("ADD 1", 60, 70), engine.receive("ADD 0", 50, 55)
    returned = main.receive("OUTPUTS 0 1.5", 120, 130)
    assert paired(trace_of(main, engine)) == [(out, arrived), (second, late), (back, returned)]


def test_where_an_id_repeats_the_kth_belongs_to_the_kth():
    """The k-th send with an id pairs with the k-th receive with that id."""
    main, engine = Recorder(1), Recorder(2)
    sends = [main.send("ABORT 7", 10 * i, 10 * i + 1) for i in range(3)]
    receives = [engine.receive("ABORT 7", 100 + 10 * i, 101 + 10 * i) for i in range(2)]
    assert paired(trace_of(main, engine)) == list(zip(sends, [*receives, None], strict=True))


def test_a_published_message_has_a_receive_in_each_process():
    """A single send pairs with the first receive of each other process."""
    coordinator, engines = Recorder(1, "DP_Coordinator"), [Recorder(2, "EngineCore_DP0"), Recorder(3, "EngineCore_DP1")]
    sent = coordinator.send("START_DP_WAVE 0", 10, 11)
    receives = [engine.receive("START_DP_WAVE 0", 20, 21) for engine in engines]
    again = engines[0].receive("START_DP_WAVE 0", 30, 31)
    trace = trace_of(coordinator, *engines)
    assert sorted(message.receive.thread[1] for message in trace.messages if message.receive) == [2, 3]
    assert {message.send.span_id for message in trace.messages} == {sent.span_id}
    assert trace.unsent == [again]
    assert all(receive is not again for receive in receives)


def test_nobody_sends_to_the_same_thread():
    """A receive is in another thread than its send, preferably in another process."""
    main, engine = Recorder(1), Recorder(2)
    to_self = main.send("ADD 0", 10, 11)
    main.receive("ADD 0", 20, 21)
    assert paired(trace_of(main)) == [(to_self, None)]
    by_thread = main.receive("ADD 0", 30, 31, thread="reader")
    trace = trace_of(main)
    assert paired(trace) == [(to_self, by_thread)]
    assert [span.start_ns for span in trace.unsent] == [main.at(20)]
    abroad = engine.receive("ADD 0", 90, 91)
    also = main.send("ADD 0", 70, 71)
    assert dict(paired(trace_of(main, engine))) == {to_self: by_thread, also: abroad}


def test_a_thread_receives_nothing_that_was_not_sent_yet():
    """Between threads of one process, a receive never precedes its send."""
    main = Recorder(1)
    early = main.receive("ADD 0", 5, 6, thread="reader")
    sent = main.send("ADD 0", 10, 11)
    trace = trace_of(main)
    assert paired(trace) == [(sent, None)]
    assert trace.unsent == [early]


def test_what_was_lost_stays_to_be_seen():
    """A send may have no receive; a receive without a send is in `unsent`."""
    main, engine = Recorder(1), Recorder(2)
    sent, came = main.send("ADD 0", 10, 11), engine.receive("ADD 1", 20, 21)
    trace = trace_of(main, engine)
    assert (paired(trace), trace.unsent) == ([(sent, None)], [came])


def test_a_failed_or_nested_encoding_is_no_send_of_its_own():
    """An `encode` that calls `encode_into` is one message, and a failed one is none."""
    main, engine = Recorder(1), Recorder(2)
    failed = main.send("ADD 0", 1, 2)
    failed.error = "TypeError"
    outer = main.send("ADD 0", 10, 20)
    main.send("ADD 0", 11, 19, outer)
    arrived = engine.receive("ADD 0", 30, 31)
    assert paired(trace_of(main, engine)) == [(outer, arrived)]


def test_clocks_that_differ_part_no_pair():
    """A receive before its send by another machine's clock still pairs with it."""
    main, engine = Recorder(1), Recorder(2, host="there", skew=-1000)
    sent, arrived = main.send("ADD 0", 10, 20), engine.receive("ADD 0", 30, 31)
    assert paired(trace_of(main, engine)) == [(sent, arrived)]


def test_each_receive_is_linked_to_its_send_once():
    """Each receive has one link to its send, with trace, span and message id, even if linked twice."""
    main, engine = Recorder(1), Recorder(2)
    sent, arrived = main.send("ADD 0", 10, 20), engine.receive("ADD 0", 30, 31)
    trace = trace_of(main, engine)
    link(trace)
    link(Trace(trace.spans))
    assert [(one.trace_id, one.span_id, one.attributes) for one in arrived.links] == [
        (sent.trace_id, sent.span_id, {names.MESSAGE_ID: "ADD 0"})
    ]
    assert sent.links == []


def test_a_caller_in_another_process_has_queue():
    """The call that starts a process is the parent of the process's calls, across traces."""
    main, engine = Recorder(1), Recorder(2)
    start = main.call("MPClient.launch_core_engines", 0, 100)
    ran = engine.call("EngineCoreProc.run_engine_core", 50, 200, start)
    ran.trace_id = "2" * 32
    trace = trace_of(main, engine)
    assert (trace.children(start), trace.parent(ran), trace.roots) == ([ran], start, [start])


def test_orphans():
    """A span with a missing parent is an orphan, unless the parent may be in another program."""
    main = Recorder(1)
    http = main.call("api_server.http", 0, 10, None, "", **{names.HTTP_METHOD: "POST"})
    below = main.call("AsyncLLM.generate", 1, 9, http)
    life = main.call(names.REQUEST_SPAN, 2, 9, None, "", **{names.REQUEST_ID: "0"})
    lost = main.call("A.f", 3, 4)
    http.parent_span_id = life.parent_span_id = lost.parent_span_id = "f" * 16
    http.trace_id = below.trace_id = "2" * 32
    life.trace_id = "3" * 32
    assert trace_of(main).orphans == [lost]
    life.trace_id = "2" * 32  # this trace has the HTTP request, so its parent should be recorded
    assert trace_of(main).orphans == [life, lost]
