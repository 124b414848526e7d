/* The messages between the launchers of several hosts, and between a launcher and the processes of
 * its own host. A message is a kind, some integers and some texts. The comment of each kind says
 * what its integers and texts mean. The parser refuses a message with a number of integers or texts
 * that its kind does not allow, or with more than FSDP_HOSTS_MESSAGE_BYTES bytes. */
#pragma once
#include <stdint.h>

#include "src/base/str.h"

enum {
    FSDP_HOSTS_MESSAGE_BYTES = 1 << 20, /* maximum number of bytes of an encoded message */
    FSDP_HOSTS_MAX = 4096               /* maximum number of hosts of a job */
};

/* Number of the protocol. Launchers with different numbers refuse each other. */
#define FSDP_HOSTS_PROTOCOL 2u

typedef enum fsdp_hosts_kind {
    /* --- from a launcher to the first one --- */
    /* Ask to join. Integers: node rank or -1, ranks of this host, least and most hosts,
     * --max-restarts. Texts: version, host name, run id, MPI library, then the digest of each
     * shared word (fsdp_shared_word in job.h). */
    FSDP_HOSTS_JOIN = 1,
    FSDP_HOSTS_OUTPUT,       /* text that the daemon of MPI wrote */
    FSDP_HOSTS_DAEMON_ENDED, /* integers: round, exit code of the daemon */
    /* A rank failed. Integers: round, rank, 1 if a restart is pointless. Text: how. */
    FSDP_HOSTS_FAILED,
    FSDP_HOSTS_SIGNALLED, /* integer: the signal that the launcher got */
    /* No rank of this host is running any more. Integers: round, and how the ranks ended (bits of
     * fsdp_hosts_ends). Text: description of the first failure of a rank, or "". */
    FSDP_HOSTS_QUIET,
    FSDP_HOSTS_IDLE, /* integer: round; neither ranks nor daemon are running any more */
    /* --- from the first launcher to another one --- */
    /* The launcher may not take part. Integer: index of the shared word that differs, or -1. Text:
     * why. */
    FSDP_HOSTS_REFUSED,
    FSDP_HOSTS_WELCOME, /* text: name of the first host */
    /* Begin a round. Integers: round, restarts so far, index of the receiver among the hosts,
     * MASTER_PORT, then the number of ranks of each host. Text: run id. */
    FSDP_HOSTS_START,
    FSDP_HOSTS_DAEMON, /* texts: the command line of MPI's daemon, which the receiver starts */
    /* Ask the ranks to end. Integers: round, and the signal that the job got, or 0 if the job
     * failed. With SIGKILL, this message has the effect of FSDP_HOSTS_KILL. */
    FSDP_HOSTS_STOP,
    FSDP_HOSTS_KILL,   /* kill the ranks, and end the daemon. Integer: round */
    FSDP_HOSTS_FINISH, /* the job has ended. Integer: exit code. Text: why, or "" */
    /* --- both directions --- */
    FSDP_HOSTS_PING, /* a sign of life */
    /* --- inside a host: between the launcher and a rank or agent --- */
    /* A rank's first message. Integers: rank, world size, local rank, local world size. */
    FSDP_HOSTS_RANK,
    /* What a rank needs to start; see plan.h. The launcher's stdin, stdout and stderr come with it.
     */
    FSDP_HOSTS_PLAN,
    /* How a rank ended. Three integers: its exit code; whether the rank was asked to end (1 or 0);
     * whether a restart is pointless (1 or 0). Text: a description of the end. */
    FSDP_HOSTS_RESULT,
    /* MPI's launch agent asks for a daemon. Texts: name of the host, then the command line. */
    FSDP_HOSTS_AGENT,
    FSDP_HOSTS_KINDS
} fsdp_hosts_kind;

/* How the ranks of a host ended after a signal. A rank that exited with 0 sets no bit. */
typedef enum fsdp_hosts_ends {
    FSDP_ENDS_FAILED = 1, /* a rank of an fsdp command failed: it could not save, for example */
    FSDP_ENDS_OTHER = 2   /* a rank ended as the signal asked, or it is not known how it ended */
} fsdp_hosts_ends;

typedef struct fsdp_hosts_message {
    fsdp_hosts_kind kind;
    int n_ints, n_texts;
    const int32_t *ints;      /* [n_ints] */
    const char *const *texts; /* [n_texts] */
    void *memory; /* memory of `ints` and `texts` that fsdp_hosts_decode() allocated; NULL: none */
} fsdp_hosts_message;

/* Append the encoded message to *out. */
void fsdp_hosts_encode(const fsdp_hosts_message *message, fsdp_str *out);
/* Read a message of exactly `size` bytes. The result has copies of its texts, and the caller frees
 * it with fsdp_hosts_message_fini().
 * @return FSDP_ERR_FORMAT if the bytes are no valid message */
FSDP_MUST_CHECK fsdp_status fsdp_hosts_decode(const void *bytes, size_t size,
                                              fsdp_hosts_message *message);
void fsdp_hosts_message_fini(fsdp_hosts_message *message);
