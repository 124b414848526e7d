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

static fsdp_status raise_first_failure(fsdp_group *group, const outcome *all)
{
    for (int r = 0; r < fsdp_group_world_size(group); r++) {
        const outcome *o = &all[r];
        if (o->status == FSDP_OK)
            continue;
        group->culprit = 1 + fsdp_group_world_rank(group, r);
        if (r != fsdp_group_rank(group))
            fsdp_error((fsdp_status)o->status, "rank %d: %s", group->culprit - 1, o->message);
        return (fsdp_status)o->status;
    }
    return FSDP_OK;
}

/* A peer that already has all records may have aborted the group. The all-gather then fails on this
 * rank. If this rank has an error of its own, return this error rather than the error of the
 * abort. */
static fsdp_status own_error_first(fsdp_status status, const outcome *own)
{
    if (status != FSDP_OK && own->status != FSDP_OK)
        return fsdp_error((fsdp_status)own->status, "%s", own->message);
    return status;
}

/* Exchange the messages of all ranks, because at least one rank has failed. `all` has space for
 * world_size outcomes. */
static fsdp_status exchange_failures(fsdp_group *group, const outcome *own, outcome *all)
{
    const fsdp_status status = fsdp_all_gather(group, own, sizeof *own, all);
    return status == FSDP_OK ? raise_first_failure(group, all) : own_error_first(status, own);
}

static fsdp_status raise_failure(fsdp_group *group, const outcome *own)
{
    outcome *all = fsdp_calloc((size_t)fsdp_group_world_size(group), sizeof *all);
    if (!all) { /* this rank cannot receive messages, so it aborts the group */
        const fsdp_status status = own_error_first(FSDP_ERR_NOMEM, own);
        fsdp_group_abort(group, status);
        return status;
    }
    const fsdp_status status = exchange_failures(group, own, all);
    fsdp_free(all);
    return status;
}

/* A record is the status of a rank, followed by its data. */
static int status_at(const unsigned char *records, size_t record, int i)
{
    int status;
    memcpy(&status, records + (size_t)i * record, sizeof status);
    return status;
}

/* Exchange the status and the data of all ranks. `records` has space for world_size + 1 records of
 * `record` bytes each. The last record is the one that this rank sends. The first world_size
 * records are filled with the records that the ranks have sent. Error messages are not part of a
 * record, because thousands of them are many bytes. They are exchanged only if a rank has
 * failed. */
static fsdp_status exchange_outcomes(fsdp_group *group, const outcome *own, const void *send,
                                     size_t bytes, size_t record, unsigned char *records)
{
    const int world_size = fsdp_group_world_size(group);
    unsigned char *mine = records + (size_t)world_size * record;
    memcpy(mine, &own->status, sizeof own->status);
    if (bytes)
        memcpy(mine + sizeof own->status, send, bytes);
    group->culprit = 0;
    const fsdp_status status = fsdp_all_gather(group, mine, record, records);
    if (status != FSDP_OK)
        return own_error_first(status, own);
    for (int r = 0; r < world_size; r++)
        if (status_at(records, record, r) != FSDP_OK)
            return raise_failure(group, own);
    return FSDP_OK;
}

fsdp_status fsdp_agree_gather(fsdp_group *group, fsdp_status mine, const void *send, size_t bytes,
                              void *recv)
{
    const int world_size = fsdp_group_world_size(group);
    const size_t record = sizeof(int) + bytes;
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
               records + (size_t)r * record + sizeof(int), bytes);
    fsdp_free(records);
    return status;
}

fsdp_status fsdp_agree(fsdp_group *group, fsdp_status mine)
{
    return fsdp_agree_gather(group, mine, NULL, 0, NULL);
}
