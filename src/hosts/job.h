/* The settings of a job of several launchers. Each launcher makes its settings from its own
 * options. The settings of all launchers must agree. */
#pragma once
#include "src/hosts/address.h"
#include "src/hosts/mpi.h"
#include "src/hosts/secret.h"
#include "src/launch/launch.h"
#include "src/launch/launch_options.h"

/* An option or a word of the command that must be equal for all launchers of a job. */
typedef struct fsdp_shared_word {
    char *shown; /* for messages. Owned */
    char digest[FSDP_DIGEST_TEXT];
} fsdp_shared_word;

typedef struct fsdp_hosts_job {
    fsdp_launch *launch;              /* borrowed */
    const fsdp_launch_config *config; /* borrowed */
    fsdp_endpoint endpoint;           /* where the launchers meet */
    bool may_be_first;                /* this launcher may listen at the endpoint */
    bool may_join; /* this launcher may join another launcher that listens at the endpoint */
    fsdp_mpi mpi;
    fsdp_job_secret secret;
    bool made_secret;                   /* this launcher made the secret */
    char secret_text[FSDP_SECRET_TEXT]; /* if made_secret: the text of the secret, to be printed */
    fsdp_shared_word *words;            /* [n_words]. Owned */
    size_t n_words;
    char host[FSDP_HOST_NAME]; /* name of this host */
} fsdp_hosts_job;

/* Fill in *job. job->launch and job->config must be set. */
FSDP_MUST_CHECK fsdp_status fsdp_hosts_job_init(fsdp_hosts_job *job, const fsdp_options *options);
void fsdp_hosts_job_fini(fsdp_hosts_job *job);

/* Run a job of several launchers, which meet at --master-addr or --rdzv-endpoint. Return when the
 * job has ended on all hosts. On FSDP_OK, *exit_code is the exit code of this process, and the
 * reason of a failure was already printed. */
FSDP_MUST_CHECK fsdp_status fsdp_hosts_run(fsdp_hosts_job *job, int *exit_code);
/* Run as the first launcher. It accepts the connections of the other launchers at the socket
 * `listener`, which it owns. */
FSDP_MUST_CHECK fsdp_status fsdp_hosts_run_first(fsdp_hosts_job *job, int listener, int *exit_code);
/* Run as a launcher that connects to the first one. */
FSDP_MUST_CHECK fsdp_status fsdp_hosts_run_other(fsdp_hosts_job *job, int *exit_code);
