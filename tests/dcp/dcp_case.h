/* A checkpoint that ranks write and tests read back: uneven and empty shards, replicas, scalars,
 * every dtype that torch has, and plain values. Byte i of each tensor is known. */
#pragma once
#include "src/dcp/dcp_reader.h"
#include "src/dcp/dcp_writer.h"
#include "tests/test.h"

/* A path in the test's directory, on all ranks. */
fsdp_status dcp_case_path(fsdp_test *t, const char *name, char path[300]);
/* Rows [begin, end) of `n` on this rank, as fully_shard cuts them. */
void dcp_case_own_rows(int64_t n, int rank, int world_size, int64_t *begin, int64_t *end);
/* Make this rank's manifest and save it. Collective. */
fsdp_status dcp_case_save(const char *dir, fsdp_group *group, fsdp_existing existing);
/* Check that all of it is in `dir`, reading it as one to five ranks would. */
void dcp_case_check(fsdp_test *t, const char *dir);
/* NULL if there is none. */
const fsdp_dcp_item *dcp_case_find(const fsdp_dcp_reader *reader, const char *fqn);
