/* Failures of a group: what a rank posts for its peers, and what the peers then return. */
#include <stdio.h>
#include <string.h>

#include "src/comm/environment.h"
#include "src/comm/group.h"
#include "src/comm/watched.h"

static fsdp_comm_watched *watched_from_outside;

void fsdp_comm_set_watched(fsdp_comm_watched *watched)
{
    watched_from_outside = watched;
}

void fsdp_group_at(fsdp_group *group, uint32_t step, const char *unit, const char *call)
{
    if (!group->control)
        return;
    fsdp_comm_location at = {.step = step};
    fsdp_comm_copy_text(at.unit, sizeof at.unit, unit);
    fsdp_comm_copy_text(at.call, sizeof at.call, call);
    fsdp_comm_place_set(&fsdp_group_board(group)->at, &at);
    if (watched_from_outside) {
        fsdp_comm_place_set(&watched_from_outside->at, &at);
        atomic_store(&watched_from_outside->rank_plus_1,
                     1 + fsdp_group_world_rank(group, group->rank));
    }
}

fsdp_comm_location fsdp_group_location(const fsdp_group *group)
{
    if (!group->control)
        return (fsdp_comm_location){0};
    return fsdp_comm_place_get(&fsdp_group_board(group)->at);
}

bool fsdp_group_post(fsdp_group *group, fsdp_status status, fsdp_comm_failure_kind kind)
{
    if (!group->control)
        return true;
    /* If the last fsdp_agree() returned the failure of a peer, group->culprit says which peer. In
     * that case, `rank` in the posted failure is this peer, not the rank that posts it. So `rank`
     * is the same, no matter which rank posts the failure first. */
    const int own = fsdp_group_world_rank(group, group->rank);
    int rank = kind == FSDP_FAILURE_OF_RANK && group->culprit ? group->culprit - 1 : own;
    fsdp_comm_failure failure = {.rank = rank,
                                 .status = (int32_t)status,
                                 .kind = kind,
                                 .at = fsdp_comm_place_get(&group->control->board[rank].at)};
    char where[160];
    fsdp_comm_location_describe(&failure.at, where, sizeof where);
    if (kind == FSDP_FAILURE_OF_ALL && where[0])
        (void)fsdp_error(status, "%s (rank %d%s)", fsdp_last_error(), own, where);
    const char *message = fsdp_last_error();
    snprintf(where, sizeof where, "rank %d: ", rank);
    if (rank != own && strncmp(message, where, strlen(where)) == 0)
        message += strlen(where); /* skip the "rank N: " that fsdp_agree() has added */
    fsdp_comm_copy_text(failure.message, sizeof failure.message, message);
    return fsdp_comm_control_abort(group->control, own, &failure);
}

fsdp_status fsdp_group_fail(fsdp_group *group, fsdp_status status)
{
    return fsdp_group_post(group, status, FSDP_FAILURE_OF_ALL)
               ? status
               : fsdp_comm_control_error(group->control);
}

/* A peer that has left makes no beats after its process has ended, and is not stopped.
 *
 * If `peer` is on another host, its heartbeat comes through a rank of this host: the partner, which
 * has the same local rank as `peer` (Note [Several hosts] in mpi/transport_mpi.c). If the partner
 * is stopped, this rank sees neither the heartbeat of the partner nor that of `peer`, and names the
 * partner. A network may be interrupted for a few seconds and recover, so a rank on another host
 * may be silent for longer. */
bool fsdp_group_is_stopped(const fsdp_group *group, int peer, int *stopped, double *silent_s)
{
    const int per_host = group->ranks_per_host;
    const int own = fsdp_group_world_rank(group, group->rank);
    const int partner = own / per_host * per_host + peer % per_host;
    *stopped = peer;
    *silent_s = fsdp_heartbeat_silent_s(group->heartbeat, peer);
    if (atomic_load(&group->control->board[peer].left))
        return false;
    if (*silent_s <= 0 || partner == peer)
        return *silent_s > 0;
    const double partner_s =
        partner == own ? 0 : fsdp_heartbeat_silent_s(group->heartbeat, partner);
    if (partner_s > 0) {
        *stopped = partner;
        *silent_s = partner_s;
        return true;
    }
    return *silent_s >= fsdp_remote_stall_s(group->stall_s);
}

/* Write to `text` why rank `accused` of another host may be silent. */
static void describe_host(const fsdp_group *group, int accused, char *text, size_t size)
{
    const char *host =
        group->ops->host_name ? group->ops->host_name(accused / group->ranks_per_host) : NULL;
    snprintf(text, size,
             "its host%s%s is down, cut off from the network, or the process is stopped?",
             host ? " " : "", host ? host : "");
}

fsdp_status fsdp_group_accuse(fsdp_group *group, int accused, double silent_s)
{
    const int own = fsdp_group_world_rank(group, group->rank);
    fsdp_comm_failure failure = {.rank = accused,
                                 .status = FSDP_ERR_COMM,
                                 .kind = FSDP_FAILURE_STOPPED,
                                 .at = fsdp_comm_place_get(&group->control->board[accused].at)};
    const bool is_here = accused / group->ranks_per_host == own / group->ranks_per_host;
    char reason[160] = "stopped by a signal or a debugger?";
    if (!is_here)
        describe_host(group, accused, reason, sizeof reason);
    snprintf(failure.message, sizeof failure.message,
             "has not moved for %.1f s (%s), and rank %d waits for it", silent_s, reason, own);
    fsdp_comm_control_abort(group->control, own, &failure);
    return fsdp_comm_control_error(group->control);
}

void fsdp_group_abort(fsdp_group *group, fsdp_status status)
{
    if (group && status != FSDP_OK)
        fsdp_group_post(group, status, FSDP_FAILURE_OF_RANK);
}

fsdp_status fsdp_group_check(const fsdp_group *group)
{
    if (!group || !group->control || !fsdp_comm_control_aborted(group->control))
        return FSDP_OK;
    return fsdp_comm_control_error(group->control);
}

static bool is_gone(const fsdp_group *group, int rank)
{
    const int peer = fsdp_group_world_rank(group, rank);
    int stopped;
    double silent_s;
    return atomic_load(&group->control->board[peer].left) ||
           fsdp_group_is_stopped(group, peer, &stopped, &silent_s);
}

bool fsdp_group_has_lost_peer(const fsdp_group *group)
{
    fsdp_comm_failure first;
    if (!group || !group->control)
        return false;
    if (fsdp_comm_control_failure(group->control, &first) &&
        (first.kind == FSDP_FAILURE_DIED || first.kind == FSDP_FAILURE_STOPPED))
        return true;
    for (int r = 0; r < group->world_size; r++)
        if (r != group->rank && is_gone(group, r))
            return true;
    return false;
}
