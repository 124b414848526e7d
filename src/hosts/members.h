/* The launchers of a job, as the first one sees them: who has joined, and who may. */
#pragma once
#include "src/hosts/job.h"
#include "src/hosts/link.h"

typedef struct fsdp_member {
    fsdp_link link;   /* fd -1: the first launcher itself, or one that has left */
    bool is_first;    /* the first launcher itself */
    bool joined;      /* has joined the job */
    bool gone;        /* has left; it is removed soon */
    bool quiet, idle; /* has no ranks, and neither ranks nor a daemon, in this round */
    int index;        /* index among the hosts of the round; -1: it does not take part */
    int node_rank;    /* --node-rank; -1: not given */
    int n_ranks;
    char host[FSDP_HOST_NAME];
    char label[64]; /* what mpirun calls the host */
    /* A JOIN that has to wait, because the member that it replaces may not be known to be lost yet;
     * kind 0: none. Owned. */
    fsdp_hosts_message held;
} fsdp_member;

typedef struct fsdp_members {
    fsdp_member **list; /* [count], in the order in which they came; the first is list[0]. Owned */
    size_t count, cap;
} fsdp_members;

/* Add the first launcher itself. */
FSDP_MUST_CHECK fsdp_status fsdp_members_init(fsdp_members *members, const fsdp_hosts_job *job);
void fsdp_members_fini(fsdp_members *members);
/* Accept the connections that wait at the socket. Connections of strangers do not accumulate: at
 * most 64, and two for each host of the job, may be unauthenticated at a time. For a new one the
 * oldest is closed. Its launcher, if it is one, connects again. */
void fsdp_members_accept(fsdp_members *members, int listener, const fsdp_hosts_job *job);
/* Free members that are gone. */
void fsdp_members_sweep(fsdp_members *members);
int fsdp_members_joined(const fsdp_members *members);
/* Give each member that has joined its index in the next round: the first launcher is 0, the others
 * follow by --node-rank, or in the order in which they came. Return how many there are. */
int fsdp_members_number(fsdp_members *members);
/* Return the member with this index in the round, or NULL. */
fsdp_member *fsdp_members_at(const fsdp_members *members, int index);

typedef enum fsdp_join_answer {
    FSDP_JOIN_ACCEPTED,
    FSDP_JOIN_LATER,  /* its place is taken; ask again when a member was lost */
    FSDP_JOIN_REFUSED /* never */
} fsdp_join_answer;
/* Decide about a JOIN, and fill in *member if it is accepted. `reason` says why it is not, and
 * *word is the index of the shared word that differs, or -1. */
fsdp_join_answer fsdp_members_join(const fsdp_members *members, const fsdp_hosts_job *job,
                                   fsdp_member *member, const fsdp_hosts_message *join,
                                   char *reason, size_t size, int *word);
