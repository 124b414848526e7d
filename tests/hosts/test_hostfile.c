/* Lists of hosts, plans of ranks, addresses and secrets. */
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/hosts/address.h"
#include "src/hosts/hostfile.h"
#include "src/hosts/plan.h"
#include "tests/hosts/links.h"

static int lookup_error; /* error of getaddrinfo(); 0: that of libc */

/* The library calls this function instead of that of libc, so that a test can choose what the name
 * server answers. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *address = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&real, &address, sizeof real); /* ISO C does not allow a conversion by a cast */
    return lookup_error ? lookup_error : real(name, service, hints, found);
}

static const char *put(fsdp_test *t, const char *name, const char *text)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    return path;
}

static const char *shown(const fsdp_host_list *list)
{
    static char text[512];
    text[0] = 0;
    for (size_t i = 0; i < list->count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s:%d ", list->names[i],
                 list->ranks[i]);
    return text;
}

TEST(hosts_are_read_in_the_forms_of_mpirun)
{
    fsdp_launch_config c = {.n_ranks = 3, .hosts = "host1:2,10.0.0.2,host1"};
    fsdp_host_list list;
    ASSERT_OK(fsdp_host_list_read(&c, &list));
    ASSERT_STR(shown(&list), "host1:5 10.0.0.2:3 ");
    ASSERT_INT(fsdp_host_list_most_ranks(&list), 5);
    fsdp_host_list_fini(&list);
    c.hosts = NULL;
    c.hostfile = put(t, "hosts",
                     "# cluster\n\nhost1 slots=2 max_slots=8 # head\r\n  host2:4\n"
                     "host3\nhost1 slots=1");
    ASSERT_OK(fsdp_host_list_read(&c, &list));
    ASSERT_STR(shown(&list), "host1:3 host2:4 host3:3 ");
    fsdp_host_list_fini(&list);
}

TEST(wrong_hosts_are_refused_by_line)
{
    static const char *const wrong[] = {
        "host slots=0", "host slots=x", "host:0",        "host:9999", "-oProxyCommand=x",
        "host;x",       "host cpus=2",  "host slots=2x", "host 2",    ":2"};
    fsdp_host_list list;
    fsdp_launch_config c = {.n_ranks = 1};
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++) {
        char text[64];
        snprintf(text, sizeof text, "good\n%s\n", wrong[i]);
        c.hostfile = put(t, "hosts", text);
        ASSERT_ERROR(fsdp_host_list_read(&c, &list), FSDP_ERR_INVALID, "hosts:2: '");
    }
    c.hostfile = put(t, "hosts", "host1 slots=3 max_slots=2\n");
    ASSERT_ERROR(fsdp_host_list_read(&c, &list), FSDP_ERR_INVALID, "2 ranks at most (max_slots)");
    c.n_ranks = 8;
    c.hostfile = put(t, "hosts", "host1 max-slots=4\n");
    ASSERT_ERROR(fsdp_host_list_read(&c, &list), FSDP_ERR_INVALID, "but has 8; slots=N or");
    c.n_ranks = 1;
    c.hostfile = put(t, "hosts", "# nothing\n");
    ASSERT_ERROR(fsdp_host_list_read(&c, &list), FSDP_ERR_INVALID, "names no host");
    c.hosts = "a,,b";
    ASSERT_ERROR(fsdp_host_list_read(&c, &list), FSDP_ERR_INVALID, "contradicts --hostfile");
    c.hostfile = NULL;
    ASSERT_ERROR(fsdp_host_list_read(&c, &list), FSDP_ERR_INVALID, "--hosts: ''");
}

static char word1[] = "./prog", word2[] = "a b", path[] = "/bin/prog", logs[] = "/tmp/logs";
static char *words[] = {word1, word2, NULL};
static int redirects[] = {0, 3}, tees[] = {1, 0};
static bool on_console[] = {true, false};
static const fsdp_hosts_shape shape = {.round = 2,
                                       .restarts = 1,
                                       .group_rank = 1,
                                       .n_hosts = 3,
                                       .first_rank = 4,
                                       .world_size = 8,
                                       .n_local = 2,
                                       .master_port = 29501};

static fsdp_launch two_ranks(cpu_set_t *cpus)
{
    return (fsdp_launch){.n_ranks = 2,
                         .command = words,
                         .program = path,
                         .role = "default",
                         .master_addr = "host0",
                         .run_id = "job",
                         .line_prefix = "[]",
                         .max_restarts = 5,
                         .omp_num_threads = 7,
                         .shutdown_timeout_s = 1.5,
                         .log_dir = logs,
                         .redirects = redirects,
                         .tees = tees,
                         .on_console = on_console,
                         .cpus = cpus};
}

TEST(a_plan_is_read_as_it_was_written)
{
    cpu_set_t cpus[2];
    fsdp_rank_plan plan;
    fsdp_str bytes = {0};
    CPU_ZERO(&cpus[1]);
    CPU_SET(3, &cpus[1]);
    const fsdp_launch launch = two_ranks(cpus);
    fsdp_plan_encode(&launch, &shape, 1, &bytes);
    ASSERT_OK(fsdp_plan_decode(bytes.data, bytes.len, &plan));
    ASSERT_INT(plan.round, 2);
    ASSERT_INT(plan.share.restarts, 1);
    ASSERT_INT(plan.share.first_rank, 5);
    ASSERT_INT(plan.share.world_size, 8);
    ASSERT_INT(plan.share.first_local_rank, 1);
    ASSERT_INT(plan.share.local_world_size, 2);
    ASSERT_INT(plan.share.group_rank, 1);
    ASSERT_INT(plan.share.group_world_size, 3);
    ASSERT_INT(plan.launch.redirects[0], 3);
    ASSERT_INT(plan.launch.tees[0], 0);
    ASSERT(!plan.launch.on_console[0]);
    ASSERT_INT(CPU_COUNT(plan.launch.cpus), 1);
    ASSERT(CPU_ISSET(3, plan.launch.cpus));
    ASSERT_STR(plan.launch.command[1], "a b");
    ASSERT(!plan.launch.command[2]);
    ASSERT_STR(plan.launch.program, "/bin/prog");
    ASSERT_STR(plan.launch.log_dir, "/tmp/logs");
    ASSERT_INT(plan.launch.master_port, 29501);
    ASSERT(plan.launch.shutdown_timeout_s > 1.49 && plan.launch.shutdown_timeout_s < 1.51);
    fsdp_plan_fini(&plan);
    /* Each allocation fails once. */
    fsdp_status status = FSDP_ERR_NOMEM;
    for (int n = 1; status != FSDP_OK && n < 50; n++) {
        fsdp_alloc_fail_at(n);
        status = fsdp_plan_decode(bytes.data, bytes.len, &plan);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    fsdp_plan_fini(&plan);
    fsdp_str_fini(&bytes);
}

TEST(a_plan_with_an_impossible_place_is_refused)
{
    const fsdp_hosts_shape wrong[] = {
        {.group_rank = 3, .n_hosts = 3, .world_size = 8, .n_local = 2},
        {.group_rank = 0, .n_hosts = 3, .world_size = 8, .n_local = 9},
        {.group_rank = 0, .n_hosts = 3, .world_size = 8, .n_local = 2, .first_rank = 7},
        {.group_rank = 0, .n_hosts = 1, .world_size = 1, .n_local = 1}, /* local rank 1 of 1 */
    };
    const fsdp_launch launch = two_ranks(NULL);
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++) {
        fsdp_str bytes = {0};
        fsdp_rank_plan plan;
        fsdp_plan_encode(&launch, &wrong[i], 1, &bytes);
        ASSERT_ERROR(fsdp_plan_decode(bytes.data, bytes.len, &plan), FSDP_ERR_FORMAT, "damaged");
        fsdp_str_fini(&bytes);
    }
}

TEST(endpoints_are_names_and_addresses_of_both_kinds)
{
    static const struct {
        const char *text, *host;
        int port;
    } good[] = {{"host0", "host0", 29500},
                {"host0:1234", "host0", 1234},
                {"10.0.0.1:80", "10.0.0.1", 80},
                {"[::1]:1234", "::1", 1234},
                {"[fe80::1%eth0]", "fe80::1%eth0", 29500},
                {"::1", "::1", 29500}};
    static const char *const wrong[] = {"",           ":1",   "host:",  "host:x",
                                        "host:70000", "[::1", "[::1]x", "[]:1"};
    fsdp_endpoint endpoint;
    for (size_t i = 0; i < FSDP_LENGTH(good); i++) {
        ASSERT_OK(fsdp_endpoint_read(good[i].text, 29500, &endpoint));
        ASSERT_STR(endpoint.host, good[i].host);
        ASSERT_INT(endpoint.port, good[i].port);
    }
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++)
        ASSERT_ERROR(fsdp_endpoint_read(wrong[i], 29500, &endpoint), FSDP_ERR_INVALID, "'");
}

/* On loopback, which is there without a network. */
TEST(launchers_connect_where_one_listens)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "localhost"};
    for (size_t i = 0; i < FSDP_LENGTH(hosts); i++) {
        fsdp_endpoint at;
        int listener, again, fd;
        bool in_use, is_local;
        snprintf(at.host, sizeof at.host, "%s", hosts[i]);
        ASSERT_OK(fsdp_free_port(&at.port));
        ASSERT_OK(fsdp_endpoint_is_local(&at, &is_local));
        if (!is_local)
            continue; /* no IPv6 */
        ASSERT_OK(fsdp_endpoint_connect(&at, NULL, 1, &fd));
        ASSERT_INT(fd, -1);
        ASSERT_OK(fsdp_endpoint_listen(&at, &listener, &in_use));
        ASSERT(listener >= 0 && !in_use);
        ASSERT_OK(fsdp_endpoint_listen(&at, &again, &in_use));
        ASSERT(again < 0 && in_use);
        ASSERT_OK(fsdp_endpoint_connect(&at, NULL, 1, &fd));
        ASSERT(fd >= 0);
        close(fd);
        close(listener);
    }
    fsdp_endpoint nowhere = {.host = "a.name.that.is.invalid", .port = 1};
    int fd = 0;
    lookup_error = EAI_NONAME;
    ASSERT_ERROR(fsdp_endpoint_connect(&nowhere, NULL, 1, &fd), FSDP_ERR_NOT_FOUND,
                 "has no address");
    /* If the name server does not answer, a launcher that waits for the first host tries again. */
    lookup_error = EAI_AGAIN;
    const fsdp_status status = fsdp_endpoint_connect(&nowhere, NULL, 1, &fd);
    lookup_error = 0;
    ASSERT_OK(status);
    ASSERT_INT(fd, -1);
    ASSERT(strstr(fsdp_last_error(), "a.name.that.is.invalid: this host has no address"));
}

TEST(secrets_are_long_and_private)
{
    fsdp_job_secret a, b;
    bool found;
    char text[FSDP_SECRET_TEXT];
    NEEDS_NETTLE();
    ASSERT_ERROR(fsdp_job_secret_of_text("short", &a), FSDP_ERR_INVALID, "5 characters");
    const char *file = put(t, "secret", "a secret in a file\nmore\n");
    chmod(file, 0644);
    ASSERT_ERROR(fsdp_job_secret_read(file, &a, &found), FSDP_ERR_INVALID, "run: chmod 600");
    chmod(file, 0600);
    ASSERT_OK(fsdp_job_secret_read(file, &a, &found));
    ASSERT(found);
    setenv("FSDP_JOB_SECRET", "a secret in a file", 1);
    ASSERT_OK(fsdp_job_secret_read(NULL, &b, &found));
    ASSERT(found && !getenv("FSDP_JOB_SECRET"));
    ASSERT(memcmp(a.key, b.key, sizeof a.key) == 0);
    setenv("FSDP_JOB_SECRET", "another secret, which the file hides", 1);
    ASSERT_OK(fsdp_job_secret_read(file, &b, &found));
    ASSERT(found && !getenv("FSDP_JOB_SECRET"));
    ASSERT(memcmp(a.key, b.key, sizeof a.key) == 0);
    ASSERT_OK(fsdp_job_secret_make(&b, text));
    ASSERT_INT(strlen(text), 32);
    ASSERT(memcmp(a.key, b.key, sizeof a.key) != 0);
    ASSERT_ERROR(fsdp_job_secret_read("/nonexistent/secret", &a, &found), FSDP_ERR_NOT_FOUND,
                 "/nonexistent/secret");
}
