/* See history.h. */
#include "history.h"

#include <stdio.h>
#include <deque>
#include <map>
#include <mutex>

#include "check.h"

namespace emu
{
#ifndef EMU_CHECK

/* An id only says that some op runs. */
uint32_t history_add(const char *, op_place, const std::vector<op_place> &)
{
    return 1;
}
void history_host_waited(op_place) {}

#else

typedef std::vector<uint64_t> vector_clock; /* a ticket for each stream; missing ones are 0 */
struct past_op {
    const char *name;
    op_place place;
    vector_clock clock;
};

static std::mutex &lock = *new std::mutex;
static std::deque<past_op> &ops = *new std::deque<past_op>; /* by id; 0 is none */
static std::map<std::pair<int, uint64_t>, uint32_t> &ids =
    *new std::map<std::pair<int, uint64_t>, uint32_t>; /* by stream and ticket */
static vector_clock &host_clock = *new vector_clock;
typedef std::lock_guard<std::mutex> guard;

static void join(vector_clock *a, const vector_clock &b)
{
    if (a->size() < b.size())
        a->resize(b.size());
    for (size_t i = 0; i < b.size(); i++)
        (*a)[i] = (*a)[i] < b[i] ? b[i] : (*a)[i];
}

static void join_op(vector_clock *a, op_place place)
{
    if (place.ticket)
        join(a, ops[ids[{place.stream, place.ticket}]].clock);
}

static bool contains(const vector_clock &clock, const past_op &o)
{
    const size_t stream = (size_t)o.place.stream;
    return stream < clock.size() && clock[stream] >= o.place.ticket;
}

uint32_t history_add(const char *name, op_place place, const std::vector<op_place> &after)
{
    guard held(lock);
    if (ops.empty())
        ops.push_back({"nothing", {0, 0, 0}, {}});
    const uint32_t id = (uint32_t)ops.size();
    vector_clock clock = host_clock;
    join_op(&clock, {place.device, place.stream, place.ticket - 1});
    for (const op_place &p : after)
        join_op(&clock, p);
    if (clock.size() <= (size_t)place.stream)
        clock.resize((size_t)place.stream + 1);
    clock[(size_t)place.stream] = place.ticket;
    ids[{place.stream, place.ticket}] = id;
    ops.push_back({name, place, std::move(clock)});
    return id;
}

void history_host_waited(op_place place)
{
    guard held(lock);
    join_op(&host_clock, place);
}

std::string op_name(uint32_t id)
{
    guard held(lock);
    return ops[id].name;
}

std::string op_text(uint32_t id)
{
    guard held(lock);
    const past_op &o = ops[id];
    char text[300];
    snprintf(text, sizeof text, "%s (device %d, stream %d, its op %llu)", o.name, o.place.device,
             o.place.stream, (unsigned long long)o.place.ticket);
    return text;
}

bool op_before_op(uint32_t a, uint32_t b)
{
    guard held(lock);
    return contains(ops[b].clock, ops[a]);
}

bool op_before_host(uint32_t a)
{
    guard held(lock);
    return contains(host_clock, ops[a]);
}

uint32_t ops_so_far(void)
{
    guard held(lock);
    return ops.empty() ? 0 : (uint32_t)ops.size() - 1;
}

#endif
} // namespace emu
