/* Agreement: all ranks continue, or all have the error of the first failing rank. Also the data
 * that ranks exchange with it. */
#include <string.h>

#include "src/comm/agree.h"
#include "tests/test.h"

enum {
    RANKS = 3,
    BYTES = 7 /* not a multiple of any alignment */
};

/* The data of rank r: its number, and the letters that follow from it. */
static void make_text(int rank, char text[BYTES])
{
    for (int i = 0; i < BYTES; i++)
        text[i] = (char)('a' + rank * BYTES + i);
}

static void check_said(fsdp_test *t)
{
    char own[BYTES], all[RANKS][BYTES], want[BYTES];
    make_text(t->rank, own);
    ASSERT_OK(fsdp_agree_gather(t->group, FSDP_OK, own, BYTES, all));
    for (int r = 0; r < t->world_size; r++) {
        make_text(r, want);
        ASSERT(memcmp(all[r], want, BYTES) == 0);
    }
}

TEST_RANKS(what_ranks_say_reaches_all_in_one_collective, RANKS)
{
    const fsdp_comm_counters before = fsdp_group_get_counters(t->group);
    check_said(t);
    CHECK_HERE();
    const fsdp_comm_counters after = fsdp_group_get_counters(t->group);
    for (int kind = 0; kind < FSDP_KIND_COUNT; kind++)
        ASSERT_INT(after.calls[kind] - before.calls[kind], kind == FSDP_KIND_ALL_GATHER);
}

TEST_RANKS(one_rank_hears_itself, 1)
{
    check_said(t);
    ASSERT_ERROR(fsdp_agree(t->group, fsdp_error(FSDP_ERR_IO, "no disk")), FSDP_ERR_IO, "no disk");
}

/* Ranks 1 and 2 fail: all ranks have rank 1's error and none of the data. The group remains
 * usable. */
TEST_RANKS(the_first_failure_is_that_of_all, RANKS)
{
    char own[BYTES], all[RANKS][BYTES] = {{0}};
    const char zero[sizeof all] = {0};
    make_text(t->rank, own);
    const fsdp_status mine = t->rank == 0   ? FSDP_OK
                             : t->rank == 1 ? fsdp_error(FSDP_ERR_IO, "f.bin: no room")
                                            : fsdp_error(FSDP_ERR_FORMAT, "g.bin: damaged");
    ASSERT_ERROR(fsdp_agree_gather(t->group, mine, own, BYTES, all), FSDP_ERR_IO,
                 t->rank == 1 ? "f.bin: no room" : "rank 1: f.bin: no room");
    ASSERT(memcmp(all, zero, sizeof all) == 0);
    check_said(t);
}
