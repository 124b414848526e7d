/* The launchers of a job, as the first launcher sees them: which launchers have joined, and which
 * may join. */
#pragma once
#include "src/hosts/job.h"
#include "src/hosts/link.h"

typedef struct fsdp_member {
    fsdp_link link;   /* fd -1: this is the first launcher itself, or the launcher has left */
    bool is_first;    /* the first launcher itself */
    bool joined;      /* has joined the job */
    bool gone;        /* has left; it is removed soon */
    bool quiet, idle; /* quiet: no ranks of this round are running on its host; idle: no daemon is
                         running there either */
    int index;        /* index among the hosts of the round; -1: it does not take part */
    int node_rank;    /* --node-rank; -1: not given */
    int n_ranks;
    char host[FSDP_HOST_NAME];
    char label[64]; /* the name that mpirun uses for the host */
    /* This member's JOIN, if it must wait. The launcher may have been started to replace another
     * member that is lost, but whose loss has not been noticed yet. kind 0: no JOIN waits.
     * Owned. */
    fsdp_hosts_message held;
} fsdp_member;

typedef struct fsdp_members {
    fsdp_member **list; /* [count], in the order in which they came; the first is list[0]. Owned */
    size_t count, cap;
} fsdp_members;

/* Add the first launcher itself. */
FSDP_MUST_CHECK fsdp_status fsdp_members_init(fsdp_members *members, const fsdp_hosts_job *job);
void fsdp_members_fini(fsdp_members *members);
/* Accept the connections that wait at the socket. At most 64 connections, and two more for each
 * host of the job, may be open without having asked to join. To accept more, the oldest of these
 * connections is closed. If a launcher is at its other end, that launcher connects again. */
void fsdp_members_accept(fsdp_members *members, int listener, const fsdp_hosts_job *job);
/* Free members that are gone. */
void fsdp_members_sweep(fsdp_members *members);
int fsdp_members_joined(const fsdp_members *members);
/* Assign an index in the next round to each joined member. The first launcher gets 0. After it come
 * the members with --node-rank, in the order of their node ranks, then all others, in the order in
 * which they came. Return the number of joined members. */
int fsdp_members_number(fsdp_members *members);
/* Return the member with this index in the round, or NULL. */
fsdp_member *fsdp_members_at(const fsdp_members *members, int index);

typedef enum fsdp_join_answer {
    FSDP_JOIN_ACCEPTED,
    FSDP_JOIN_LATER,  /* its node rank is taken, or the job has all its hosts; it may join when a
                         member is lost */
    FSDP_JOIN_REFUSED /* it may never join */
} fsdp_join_answer;
/* Decide whether a launcher may join. If it may, fill in *member. If not, write to `reason` [size]
 * why, and set *word to the index of the shared word that differs, or to -1. */
fsdp_join_answer fsdp_members_join(const fsdp_members *members, const fsdp_hosts_job *job,
                                   fsdp_member *member, const fsdp_hosts_message *join,
                                   char *reason, size_t size, int *word);
