/* See members.h. */
#include "src/hosts/members.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/control.h"

static const double HANDSHAKE_S = 10.0; /* time to authenticate and to ask to join */

enum {
    MOST_STRANGERS = 64
};

static fsdp_status add_member(fsdp_members *members, fsdp_member **member)
{
    fsdp_member *made = fsdp_calloc(1, sizeof *made);
    if (!made || !FSDP_GROW(members->list, members->cap, members->count + 1)) {
        fsdp_free(made);
        return fsdp_error_nomem();
    }
    made->link.fd = -1;
    made->index = -1;
    made->node_rank = -1;
    members->list[members->count++] = made;
    *member = made;
    return FSDP_OK;
}

fsdp_status fsdp_members_init(fsdp_members *members, const fsdp_hosts_job *job)
{
    fsdp_member *self;
    FSDP_TRY(add_member(members, &self));
    self->is_first = self->joined = true;
    self->n_ranks = job->launch->n_ranks;
    self->node_rank = job->config->has_node_rank && !job->config->rdzv_endpoint ? 0 : -1;
    memcpy(self->host, job->host, sizeof self->host);
    return FSDP_OK;
}

static void free_member(fsdp_member *member)
{
    fsdp_link_close(&member->link);
    fsdp_hosts_message_fini(&member->held);
    fsdp_free(member);
}

void fsdp_members_fini(fsdp_members *members)
{
    for (size_t i = 0; i < members->count; i++)
        free_member(members->list[i]);
    fsdp_free(members->list);
    *members = (fsdp_members){0};
}

/* Return true for a connection that has not asked to join yet. */
static bool is_stranger(const fsdp_member *m)
{
    return !m->is_first && !m->joined && !m->gone && !m->held.kind;
}

void fsdp_members_sweep(fsdp_members *members)
{
    size_t n = 0;
    for (size_t i = 0; i < members->count; i++) {
        fsdp_member *m = members->list[i];
        if (is_stranger(m) && fsdp_clock_s() - m->link.opened_s > HANDSHAKE_S)
            m->gone = true;
        if (m->gone)
            free_member(m);
        else
            members->list[n++] = m;
    }
    members->count = n;
}

/* If there are too many strangers, close the connection of the oldest. */
static void limit_strangers(fsdp_members *members, int most)
{
    fsdp_member *oldest = NULL;
    int n = 0;
    for (size_t i = 0; i < members->count; i++) {
        fsdp_member *m = members->list[i];
        if (!is_stranger(m))
            continue;
        n++;
        if (!oldest || m->link.opened_s < oldest->link.opened_s)
            oldest = m;
    }
    if (n < most)
        return;
    oldest->gone = true;
    fsdp_members_sweep(members);
}

void fsdp_members_accept(fsdp_members *members, int listener, const fsdp_hosts_job *job)
{
    fsdp_member *member;
    const int most = MOST_STRANGERS + 2 * job->config->most_nodes;
    /* Accept only a limited number, so that a flood of connections does not keep the launcher from
     * its other work. */
    for (int i = 0; i < 2 * most; i++) {
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        limit_strangers(members, most);
        if (add_member(members, &member) != FSDP_OK) {
            close(fd);
            return;
        }
        if (fsdp_link_init(&member->link, fd, true, &job->secret) != FSDP_OK)
            member->gone = true;
    }
}

int fsdp_members_joined(const fsdp_members *members)
{
    int n = 0;
    for (size_t i = 0; i < members->count; i++)
        n += members->list[i]->joined && !members->list[i]->gone;
    return n;
}

/* Return the sort key of a member. The first launcher comes first, then members with --node-rank in
 * the order of their node ranks, then all others. */
static int place_of(const fsdp_member *m)
{
    return m->is_first ? -1 : m->node_rank >= 0 ? m->node_rank : INT_MAX;
}

int fsdp_members_number(fsdp_members *members)
{
    int n = 0;
    for (size_t i = 0; i < members->count; i++) {
        fsdp_member *m = members->list[i];
        m->index = -1;
        if (!m->joined || m->gone)
            continue;
        n++;
        m->index = 0;
        for (size_t k = 0; k < members->count; k++) {
            const fsdp_member *other = members->list[k];
            if (other->joined && !other->gone)
                m->index +=
                    place_of(other) < place_of(m) || (k < i && place_of(other) == place_of(m));
        }
        char name[33];
        snprintf(name, sizeof name, "%.32s", m->host);
        for (char *at = name; *at; at++)
            *at = isalnum((unsigned char)*at) ? *at : '-';
        if (m->is_first)
            snprintf(m->label, sizeof m->label, "%.63s", m->host);
        else
            snprintf(m->label, sizeof m->label, "%s-node%d", name, m->index);
    }
    return n;
}

fsdp_member *fsdp_members_at(const fsdp_members *members, int index)
{
    for (size_t i = 0; i < members->count; i++)
        if (members->list[i]->index == index && !members->list[i]->gone)
            return members->list[i];
    return NULL;
}

/* ---- who may join ---- */

/* Compare the version, --rdzv-id, --nnodes, the MPI library and the command line of a JOIN with
 * those of this host. If one of these differs, return false and write to `reason` which value
 * differs. If a word of the command line differs, set *word to its index. */
static bool check_shared(const fsdp_hosts_job *job, const fsdp_hosts_message *join, char *reason,
                         size_t size, int *word)
{
    const fsdp_launch_config *c = job->config;
    const size_t n = (size_t)join->n_texts - 4;
    if (strcmp(join->texts[0], FSDP_VERSION) != 0)
        snprintf(reason, size, "its fsdp is version %.32s, and %s on %s", join->texts[0],
                 FSDP_VERSION, job->host);
    else if (strcmp(join->texts[2], job->launch->run_id) != 0)
        snprintf(reason, size, "its --rdzv-id is %.64s, and %.64s on %s: it belongs to another job",
                 join->texts[2], job->launch->run_id, job->host);
    else if (join->ints[2] != c->least_nodes || join->ints[3] != c->most_nodes)
        snprintf(reason, size, "its --nnodes is %d:%d, and %d:%d on %s", join->ints[2],
                 join->ints[3], c->least_nodes, c->most_nodes, job->host);
    else if (strcmp(join->texts[3], job->mpi.name) != 0)
        snprintf(reason, size,
                 "it starts ranks by %.64s, and %s by %s; install the same, or choose by --mpi",
                 join->texts[3], job->host, job->mpi.name);
    for (size_t i = 0; !*reason && i < n && i < job->n_words; i++) {
        if (strcmp(join->texts[4 + i], job->words[i].digest) == 0)
            continue;
        *word = (int)i;
        snprintf(reason, size, "its command line differs: on %s it is %.200s", job->host,
                 job->words[i].shown);
    }
    if (!*reason && n != job->n_words)
        snprintf(reason, size, "its command line has %s words than that of %s",
                 n < job->n_words ? "fewer" : "more", job->host);
    return !*reason;
}

static const fsdp_member *find_node_rank(const fsdp_members *members, int node_rank)
{
    for (size_t i = 0; node_rank >= 0 && i < members->count; i++)
        if (members->list[i]->joined && !members->list[i]->gone &&
            members->list[i]->node_rank == node_rank)
            return members->list[i];
    return NULL;
}

fsdp_join_answer fsdp_members_join(const fsdp_members *members, const fsdp_hosts_job *job,
                                   fsdp_member *member, const fsdp_hosts_message *join,
                                   char *reason, size_t size, int *word)
{
    const int node_rank = join->ints[0], n_ranks = join->ints[1];
    *word = -1;
    *reason = 0;
    snprintf(member->host, sizeof member->host, "%s", join->texts[1]);
    for (char *at = member->host; *at; at++) /* the name will be printed */
        *at = isprint((unsigned char)*at) ? *at : '?';
    if (!check_shared(job, join, reason, size, word))
        return FSDP_JOIN_REFUSED;
    if (n_ranks < 1 || n_ranks > FSDP_COMM_MAX_RANKS || node_rank >= job->config->most_nodes) {
        snprintf(reason, size, "its number of ranks, %d, or its --node-rank, %d, is not allowed",
                 n_ranks, node_rank);
        return FSDP_JOIN_REFUSED;
    }
    const fsdp_member *taken = find_node_rank(members, node_rank);
    if (taken)
        snprintf(reason, size, "--node-rank %d is that of host %s", node_rank, taken->host);
    else if (fsdp_members_joined(members) >= job->config->most_nodes)
        snprintf(reason, size, "the job has its %d hosts already", job->config->most_nodes);
    if (*reason)
        return FSDP_JOIN_LATER;
    member->joined = true;
    member->node_rank = node_rank;
    member->n_ranks = n_ranks;
    return FSDP_JOIN_ACCEPTED;
}
