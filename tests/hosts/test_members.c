/* Who may join a job, and that strangers do not disturb it. */
#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/hosts/members.h"
#include "tests/hosts/links.h"

static char openmpi[] = "Open MPI 4.1.4";

/* A job of 2 to 3 hosts, of a command with two words. */
typedef struct job_under_test {
    fsdp_launch launch;
    fsdp_launch_config config;
    fsdp_shared_word words[2];
    char shown[2][32];
    fsdp_hosts_job job;
    fsdp_members members;
} job_under_test;

static fsdp_status make_job(job_under_test *u)
{
    *u = (job_under_test){.launch = {.n_ranks = 2, .run_id = "job"},
                          .config = {.least_nodes = 2, .most_nodes = 3, .has_node_rank = true}};
    u->job = (fsdp_hosts_job){.launch = &u->launch,
                              .config = &u->config,
                              .words = u->words,
                              .n_words = 2,
                              .host = "host0"};
    snprintf(u->job.mpi.name, sizeof u->job.mpi.name, "%s", openmpi);
    FSDP_TRY(fsdp_job_secret_of_text("a secret of the tests", &u->job.secret));
    for (int i = 0; i < 2; i++) {
        snprintf(u->shown[i], sizeof u->shown[i], i ? "'1e-4', word 2" : "'./prog', word 1");
        u->words[i].shown = u->shown[i];
        fsdp_job_secret_digest(&u->job.secret, i ? "1e-4" : "./prog", u->words[i].digest);
    }
    return fsdp_members_init(&u->members, &u->job);
}

static fsdp_join_answer join(job_under_test *u, const char *host, int node_rank, int most,
                             const char *version, const char *run_id, const char *mpi,
                             const char *word, char reason[256], int *differs)
{
    char digest[FSDP_DIGEST_TEXT];
    fsdp_job_secret_digest(&u->job.secret, word, digest);
    const char *texts[] = {version, host, run_id, mpi, u->words[0].digest, digest};
    const int32_t ints[] = {node_rank, 4, 2, most, 0};
    const fsdp_hosts_message m = {
        .kind = FSDP_HOSTS_JOIN, .ints = ints, .n_ints = 5, .texts = texts, .n_texts = 6};
    fsdp_member *member = calloc(1, sizeof *member);
    member->link.fd = -1;
    member->index = -1;
    const fsdp_join_answer answer =
        fsdp_members_join(&u->members, &u->job, member, &m, reason, 256, differs);
    if (answer != FSDP_JOIN_ACCEPTED) {
        free(member);
        return answer;
    }
    /* As fsdp_members_accept() does. */
    fsdp_member **list = realloc(u->members.list, (u->members.count + 1) * sizeof *list);
    u->members.list = list;
    list[u->members.count++] = member;
    return answer;
}

#define JOIN(host, node_rank)                                                                      \
    join(&u, host, node_rank, 3, FSDP_VERSION, "job", openmpi, "1e-4", reason, &word)

TEST(hosts_join_and_are_numbered_by_their_node_rank)
{
    job_under_test u;
    char reason[256];
    int word;
    NEEDS_NETTLE();
    ASSERT_OK(make_job(&u));
    ASSERT_INT(JOIN("host2", 2), FSDP_JOIN_ACCEPTED);
    ASSERT_INT(JOIN("host9", 2), FSDP_JOIN_LATER);
    ASSERT_STR(reason, "--node-rank 2 is that of host host2");
    ASSERT_INT(JOIN("host1", 1), FSDP_JOIN_ACCEPTED);
    ASSERT_INT(JOIN("host3", -1), FSDP_JOIN_LATER);
    ASSERT_STR(reason, "the job has its 3 hosts already");
    ASSERT_INT(fsdp_members_number(&u.members), 3);
    ASSERT_STR(fsdp_members_at(&u.members, 0)->host, "host0");
    ASSERT_STR(fsdp_members_at(&u.members, 1)->host, "host1");
    ASSERT_STR(fsdp_members_at(&u.members, 2)->host, "host2");
    ASSERT_STR(fsdp_members_at(&u.members, 2)->label, "host2-node2");
    /* The host in the middle is lost: the others keep their order. */
    fsdp_members_at(&u.members, 1)->gone = true;
    ASSERT_INT(fsdp_members_number(&u.members), 2);
    ASSERT_STR(fsdp_members_at(&u.members, 1)->host, "host2");
    ASSERT_INT(JOIN("host1", 1), FSDP_JOIN_ACCEPTED);
    fsdp_members_fini(&u.members);
}

TEST(hosts_that_differ_are_refused_with_the_difference)
{
    job_under_test u;
    char reason[256];
    int word;
    NEEDS_NETTLE();
    ASSERT_OK(make_job(&u));
    ASSERT_INT(join(&u, "h", 1, 3, "0.0.9", "job", openmpi, "1e-4", reason, &word),
               FSDP_JOIN_REFUSED);
    ASSERT(strstr(reason, "its fsdp is version 0.0.9"));
    ASSERT_INT(join(&u, "h", 1, 3, FSDP_VERSION, "other", openmpi, "1e-4", reason, &word),
               FSDP_JOIN_REFUSED);
    ASSERT(strstr(reason, "it belongs to another job"));
    ASSERT_INT(join(&u, "h", 1, 2, FSDP_VERSION, "job", openmpi, "1e-4", reason, &word),
               FSDP_JOIN_REFUSED);
    ASSERT(strstr(reason, "its --nnodes is 2:2, and 2:3 on host0"));
    ASSERT_INT(join(&u, "h", 1, 3, FSDP_VERSION, "job", "MPICH 4.0.2", "1e-4", reason, &word),
               FSDP_JOIN_REFUSED);
    ASSERT(strstr(reason, "MPICH 4.0.2"));
    ASSERT_INT(join(&u, "h", 1, 3, FSDP_VERSION, "job", openmpi, "2e-4", reason, &word),
               FSDP_JOIN_REFUSED);
    ASSERT_INT(word, 1);
    ASSERT(strstr(reason, "on host0 it is '1e-4', word 2"));
    ASSERT_INT(JOIN("h", 3), FSDP_JOIN_REFUSED);
    ASSERT_INT(fsdp_members_joined(&u.members), 1);
    fsdp_members_fini(&u.members);
}

/* Listen at a free port of loopback. */
static int listen_somewhere(struct sockaddr_in *at)
{
    socklen_t size = sizeof *at;
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(fd, (struct sockaddr *)at, size) == 0 && listen(fd, 512) == 0)
        getsockname(fd, (struct sockaddr *)at, &size);
    return fd;
}

static int connect_to(const struct sockaddr_in *at)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)at, sizeof *at) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* 1,000 connections that stay open and say nothing, and then a launcher of the job. */
TEST(a_thousand_open_connections_do_not_keep_a_launcher_out)
{
    enum {
        N = 1000
    };
    static int fds[N];
    job_under_test u;
    struct sockaddr_in at;
    struct rlimit limit;
    NEEDS_NETTLE();
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < N + 300) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < N + 300)
        SKIP("a process may open only %ld files", (long)limit.rlim_cur);
    ASSERT_OK(make_job(&u));
    const int listener = listen_somewhere(&at);
    for (int i = 0; i < N; i++) {
        fds[i] = connect_to(&at);
        ASSERT(fds[i] >= 0);
        if (i % 100 == 99)
            fsdp_members_accept(&u.members, listener, &u.job);
        ASSERT(u.members.count <= 1 + 64 + 6);
    }
    fsdp_link link;
    ASSERT_OK(fsdp_link_init(&link, connect_to(&at), false, &u.job.secret));
    fsdp_members_accept(&u.members, listener, &u.job);
    fsdp_member *last = u.members.list[u.members.count - 1];
    const double end_s = fsdp_clock_s() + 10;
    while ((link.stage != FSDP_LINK_OPEN || last->link.stage != FSDP_LINK_OPEN) &&
           fsdp_clock_s() < end_s) {
        ASSERT_OK(fsdp_link_pump(&last->link));
        ASSERT_OK(fsdp_link_pump(&link));
    }
    ASSERT_INT(last->link.stage, FSDP_LINK_OPEN);
    ASSERT_INT(u.members.count, 71); /* itself, the launcher, and 69 of 64 + 2 * 3 strangers */
    for (int i = 0; i < N; i++)
        close(fds[i]);
    fsdp_link_close(&link);
    fsdp_members_fini(&u.members);
    close(listener);
}
