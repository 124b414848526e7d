/* Streams and events. A stream is an OS thread with a queue of ops.
 *
 * Note [Late streams]. An op begins when something waits for it (the host, or an op of another
 * stream by an event), or after EMU_LATE_MS. So a result that is used without a wait is not there,
 * each time. If EMU_SEED is set, half of the ops begin at once and half after up to 1 ms, to try
 * orders that lateness hides (a buffer that is used again too early). */
#include "stream.h"

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "block.h"
#include "errors.h"
#include "history.h"
#include "memory.h"
#include "settings.h"

typedef std::chrono::steady_clock steady;

namespace emu
{
struct dependency {
    CUstream_st *stream;
    uint64_t ticket;
};
struct op {
    uint64_t ticket;
    uint32_t id;
    std::function<void()> run;
    std::vector<dependency> after;
    steady::time_point latest_begin;
    bool all_devices;
};
} // namespace emu

using namespace emu;

struct CUstream_st {
    int device, index;
    bool blocking; /* ordered with the device's legacy stream */
    bool stop;
    uint64_t asked, done, wanted; /* tickets: enqueued, ended, and waited for by something */
    uint64_t next_awaited;        /* the lowest ticket that a thread sleeps for, or NOT_AWAITED */
    std::deque<op> queue;
    std::condition_variable work;  /* its own thread sleeps until there is an op, or it is wanted */
    std::condition_variable ended; /* other threads sleep until next_awaited has ended */
    std::thread thread;
};
#define NOT_AWAITED UINT64_MAX
struct CUevent_st {
    CUstream_st *stream; /* NULL: not recorded */
    uint64_t ticket;
    steady::time_point *when;
};

namespace emu
{
typedef std::unique_lock<std::mutex> runtime_guard;
/* None of these is destroyed when the process ends, since the threads may outlive main(). */
static std::vector<CUstream_st *> &streams = *new std::vector<CUstream_st *>;
static std::vector<CUstream_st *> &ended = *new std::vector<CUstream_st *>; /* events use them */
static std::vector<worker *> &idle_workers = *new std::vector<worker *>;
static CUstream_st *legacy_streams[DEVICES];
static int n_streams, n_workers;
static thread_local int the_device;
thread_local uint32_t current_op;

int current_device(void)
{
    return the_device;
}

static op_place place_of(const CUstream_st *s, uint64_t ticket)
{
    return {s->device, s->index, ticket};
}

/* --- the thread of a stream --- */

static void want(CUstream_st *s, uint64_t ticket)
{
    if (s->wanted < ticket) {
        s->wanted = ticket;
        s->work.notify_one();
    }
}

/* Sleeps until this op has ended. Each op that ends while others sleep would otherwise wake all of
 * them, which costs more than small kernels. */
static void wait_until_ended(runtime_guard &lock, CUstream_st *s, uint64_t ticket)
{
    want(s, ticket);
    while (s->done < ticket) {
        s->next_awaited = std::min(s->next_awaited, ticket);
        s->ended.wait(lock);
    }
}

static void set_done(CUstream_st *s, uint64_t ticket)
{
    s->done = ticket;
    if (ticket >= s->next_awaited) {
        s->next_awaited = NOT_AWAITED; /* those that sleep for a later one set it again */
        s->ended.notify_all();
    }
}

static void wait_until_due(runtime_guard &lock, CUstream_st *s, const op &o, uint64_t *random)
{
    if (!settings.seed) {
        s->work.wait_until(lock, o.latest_begin, [&] { return s->stop || s->wanted >= o.ticket; });
    } else if (next_random(random) & 1) {
        lock.unlock();
        usleep((unsigned)(next_random(random) % 1000));
        lock.lock();
    }
}

static void use_other_devices(const CUstream_st *s, int by)
{
    for (int d = 0; d < settings.n_devices; d++)
        if (d != s->device)
            use_pages(d, by);
}

static void run_op(runtime_guard &lock, const CUstream_st *s, const op &o)
{
    for (const dependency &d : o.after)
        wait_until_ended(lock, d.stream, d.ticket);
    if (o.all_devices)
        use_other_devices(s, 1);
    lock.unlock();
    current_op = o.id;
    if (broken() == cudaSuccess)
        o.run();
    current_op = 0;
    lock.lock();
    if (o.all_devices)
        use_other_devices(s, -1);
}

static void run_stream(CUstream_st *s)
{
    runtime_guard lock(runtime_lock);
    uint64_t random = settings.seed * 7919 + (uint64_t)s->index;
    the_device = s->device;
    for (;;) {
        s->work.wait(lock, [&] { return s->stop || !s->queue.empty(); });
        if (s->queue.empty())
            break;
        wait_until_due(lock, s, s->queue.front(), &random);
        /* Pages stay open from one op to the next if both are waited for: opening costs time. */
        use_pages(s->device, 1);
        do {
            const op &o = s->queue.front(); /* it stays in place while others are added */
            run_op(lock, s, o);
            const uint64_t ticket = o.ticket;
            s->queue.pop_front();
            set_done(s, ticket);
        } while (!settings.seed && !s->queue.empty() && s->wanted >= s->queue.front().ticket);
        use_pages(s->device, -1);
    }
    if (me)
        idle_workers.push_back(me);
}

/* Give the calling thread, which is that of a stream, memory to run kernels. */
static void get_worker(void)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    if (idle_workers.empty()) {
        me = make_worker(n_workers++);
    } else {
        me = idle_workers.back();
        idle_workers.pop_back();
    }
    adopt_worker(me);
}

/* Run a kernel; called by the thread of a stream. */
void run_launch(const launch *l)
{
    if (!me)
        get_worker();
    me->l = *l;
    run_kernel(me);
}

/* --- enqueueing; with the lock --- */

static CUstream_st *make_stream(int device, bool blocking)
{
    CUstream_st *s = new CUstream_st();
    s->device = device;
    s->blocking = blocking;
    s->index = n_streams++;
    s->next_awaited = NOT_AWAITED;
    streams.push_back(s);
    s->thread = std::thread(run_stream, s);
    return s;
}

static CUstream_st *stream_of(cudaStream_t s)
{
    if (s && s != cudaStreamLegacy)
        return s;
    if (!legacy_streams[the_device])
        legacy_streams[the_device] = make_stream(the_device, true);
    return legacy_streams[the_device];
}

/* A device's legacy stream and its blocking streams wait for each other. */
static void add_legacy_order(const CUstream_st *s, std::vector<dependency> *after)
{
    const CUstream_st *legacy = legacy_streams[s->device];
    if (!s->blocking)
        return;
    for (CUstream_st *o : streams)
        if (o != s && o->device == s->device && o->asked && o->blocking &&
            (s == legacy || o == legacy))
            after->push_back({o, o->asked});
}

static uint64_t push(CUstream_st *s, const char *name, std::function<void()> run,
                     std::vector<dependency> after, bool all_devices)
{
    const uint64_t ticket = ++s->asked;
    std::vector<op_place> places;
    add_legacy_order(s, &after);
    for (const dependency &d : after)
        places.push_back(place_of(d.stream, d.ticket));
    const uint32_t id = history_add(name, place_of(s, ticket), places);
    s->queue.push_back({ticket, id, std::move(run), std::move(after),
                        steady::now() + std::chrono::milliseconds(settings.late_ms), all_devices});
    if (s->queue.size() == 1)
        s->work.notify_one();
    return ticket;
}

static void wait_for(runtime_guard &lock, CUstream_st *s, uint64_t ticket)
{
    wait_until_ended(lock, s, ticket);
    history_host_waited(place_of(s, ticket));
}

cudaError_t enqueue(cudaStream_t stream, const char *name, std::function<void()> run,
                    bool all_devices)
{
    EMU_RETURN_IF_BROKEN();
    runtime_guard lock(runtime_lock);
    push(stream_of(stream), name, std::move(run), {}, all_devices);
    return cudaSuccess;
}

cudaError_t enqueue_and_wait(cudaStream_t stream, const char *name, std::function<void()> run,
                             bool all_devices)
{
    EMU_RETURN_IF_BROKEN();
    runtime_guard lock(runtime_lock);
    CUstream_st *s = stream_of(stream);
    wait_for(lock, s, push(s, name, std::move(run), {}, all_devices));
    return fail(broken());
}

void wait_for_device(void)
{
    start();
    runtime_guard lock(runtime_lock);
    const std::vector<CUstream_st *> all = streams;
    for (CUstream_st *s : all)
        if (s->device == the_device)
            wait_for(lock, s, s->asked);
}
} // namespace emu

/* --- devices and streams --- */

cudaError_t cudaSetDevice(int device)
{
    start();
    if (device < 0 || device >= settings.n_devices)
        return fail(cudaErrorInvalidDevice);
    the_device = device;
    return fail(broken());
}

cudaError_t cudaGetDevice(int *device)
{
    *device = the_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    wait_for_device();
    return fail(broken());
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    EMU_RETURN_IF_BROKEN();
    runtime_guard lock(runtime_lock);
    *s = make_stream(the_device, !(flags & cudaStreamNonBlocking));
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    EMU_RETURN_IF_BROKEN();
    runtime_guard lock(runtime_lock);
    CUstream_st *s = stream_of(stream);
    wait_for(lock, s, s->asked);
    return fail(broken());
}

/* What is queued still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    {
        runtime_guard lock(runtime_lock);
        s->stop = true;
        s->work.notify_one();
    }
    s->thread.join();
    runtime_guard lock(runtime_lock);
    if (!is_check_build) { /* there, cudaDeviceSynchronize() orders its ops before the host */
        for (size_t i = 0; i < streams.size(); i++)
            if (streams[i] == s)
                streams.erase(streams.begin() + (long)i--);
        ended.push_back(s);
    }
    return fail(broken());
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    EMU_RETURN_IF_BROKEN();
    runtime_guard lock(runtime_lock);
    CUstream_st *s = stream_of(stream);
    if (s->done < s->asked)
        return fail(cudaErrorNotReady);
    wait_for(lock, s, s->asked);
    return fail(broken());
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    EMU_RETURN_IF_BROKEN();
    runtime_guard lock(runtime_lock);
    if (e->stream)
        push(
            stream_of(s), "cudaStreamWaitEvent", [] {}, {{e->stream, e->ticket}}, false);
    return cudaSuccess;
}

/* For the checks, the function is an op: it knows what came before it in the stream. */
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void *data)
{
    return enqueue(s, "host function", [=] { function(data); });
}

/* --- events --- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    EMU_RETURN_IF_BROKEN();
    *e = new CUevent_st();
    (*e)->when = new steady::time_point;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    if (e->stream) { /* its op still writes the time */
        runtime_guard lock(runtime_lock);
        wait_until_ended(lock, e->stream, e->ticket);
    }
    delete e->when;
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    EMU_RETURN_IF_BROKEN();
    runtime_guard lock(runtime_lock);
    steady::time_point *when = e->when;
    e->stream = stream_of(s);
    e->ticket = push(
        e->stream, "cudaEventRecord", [when] { *when = steady::now(); }, {}, false);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    EMU_RETURN_IF_BROKEN();
    runtime_guard lock(runtime_lock);
    if (e->stream)
        wait_for(lock, e->stream, e->ticket);
    return fail(broken());
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    EMU_RETURN_IF_BROKEN();
    runtime_guard lock(runtime_lock);
    if (e->stream && e->stream->done < e->ticket)
        return fail(cudaErrorNotReady);
    if (e->stream)
        wait_for(lock, e->stream, e->ticket);
    return fail(broken());
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    *ms = std::chrono::duration<float, std::milli>(*b->when - *a->when).count();
    return cudaSuccess;
}
