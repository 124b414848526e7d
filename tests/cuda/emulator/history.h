/* Which op surely ran before which, for the check build.
 *
 * Note [Order of ops]. Each op has a vector clock: for each stream the ticket of its last op that
 * surely ended before the op began, whatever the speed of the streams. The host has one clock for
 * all of its threads. Waits join the clock of what was waited for to it. The other builds keep
 * nothing. */
#pragma once
#include <stdint.h>
#include <string>
#include <vector>

namespace emu
{
/* The ticket-th op of a stream; tickets begin at 1. */
struct op_place {
    int device, stream;
    uint64_t ticket;
};
/* Add an op that runs after the previous op of its stream and after those of `after`. Returns its
 * id. */
uint32_t history_add(const char *name, op_place place, const std::vector<op_place> &after);
/* The host waited for an op; ticket 0 is nothing. */
void history_host_waited(op_place place);

std::string op_name(uint32_t id);
std::string op_text(uint32_t id);
bool op_before_op(uint32_t a, uint32_t b);
bool op_before_host(uint32_t a);
uint32_t ops_so_far(void);
} // namespace emu
