/* See agree.h. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/comm/group.h"

typedef struct outcome {
    int status;
    char message[508];
} outcome;

/* A record is an outcome followed by the rank's data. */
static const outcome *outcome_at(const unsigned char *records, size_t bytes, int i)
{
    return (const outcome *)(const void *)(records + (size_t)i * bytes);
}

static fsdp_status raise_first_failure(fsdp_group *group, const unsigned char *records,
                                       size_t bytes)
{
    for (int r = 0; r < fsdp_group_world_size(group); r++) {
        const outcome *o = outcome_at(records, bytes, r);
        if (o->status == FSDP_OK)
            continue;
        group->culprit = 1 + fsdp_group_world_rank(group, r);
        if (r != fsdp_group_rank(group))
            fsdp_error((fsdp_status)o->status, "rank %d: %s", group->culprit - 1, o->message);
        return (fsdp_status)o->status;
    }
    return FSDP_OK;
}

/* `records` has room for world_size + 1 records of `record` bytes each. The last one is the record
 * that this rank sends. The first world_size receive the records of all ranks. */
static fsdp_status exchange_outcomes(fsdp_group *group, const outcome *own, const void *send,
                                     size_t bytes, size_t record, unsigned char *records)
{
    unsigned char *mine = records + (size_t)fsdp_group_world_size(group) * record;
    memcpy(mine, own, sizeof *own);
    if (bytes)
        memcpy(mine + sizeof *own, send, bytes);
    fsdp_status status = fsdp_all_gather(group, mine, record, records);
    group->culprit = 0;
    /* A peer that already has all records may have aborted the group. The all-gather then fails on
     * this rank. If this rank has an error of its own, return this error rather than the error of
     * the abort. */
    if (status != FSDP_OK && own->status != FSDP_OK)
        return fsdp_error((fsdp_status)own->status, "%s", own->message);
    return status == FSDP_OK ? raise_first_failure(group, records, record) : status;
}

fsdp_status fsdp_agree_gather(fsdp_group *group, fsdp_status mine, const void *send, size_t bytes,
                              void *recv)
{
    const int world_size = fsdp_group_world_size(group);
    /* Round `bytes` up, so that the outcome at the beginning of the next record is aligned. */
    const size_t padded = (bytes + sizeof(int) - 1) / sizeof(int) * sizeof(int);
    const size_t record = sizeof(outcome) + padded;
    if (world_size == 1) {
        if (mine == FSDP_OK && bytes)
            memcpy(recv, send, bytes);
        return mine;
    }
    outcome own = {.status = (int)mine};
    if (mine != FSDP_OK)
        snprintf(own.message, sizeof own.message, "%s", fsdp_last_error());
    unsigned char *records = fsdp_calloc((size_t)world_size + 1, record);
    if (!records) { /* this rank cannot send a record, so it aborts the group */
        fsdp_group_abort(group, FSDP_ERR_NOMEM);
        return FSDP_ERR_NOMEM;
    }
    fsdp_status status = exchange_outcomes(group, &own, send, bytes, record, records);
    for (int r = 0; status == FSDP_OK && bytes && r < world_size; r++)
        memcpy((unsigned char *)recv + (size_t)r * bytes,
               records + (size_t)r * record + sizeof(outcome), bytes);
    fsdp_free(records);
    return status;
}

fsdp_status fsdp_agree(fsdp_group *group, fsdp_status mine)
{
    return fsdp_agree_gather(group, mine, NULL, 0, NULL);
}
