/* libFuzzer over what launchers of several hosts send each other, and what MPI gives to the launch
 * agent: `make fuzz FUZZ_S=60`. The input is sent to a launcher that has not authenticated the
 * sender, and is read as a message, as the plan of a rank and as a daemon's command line. A message
 * that can be read is written again and gives the same bytes. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/hosts/link.h"
#include "src/hosts/mpi.h"
#include "src/hosts/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void hosts_require(bool good)
{
    if (!good)
        abort();
}

static void read_as_message(const uint8_t *data, size_t bytes)
{
    fsdp_hosts_message m;
    fsdp_str again = {0};
    if (fsdp_hosts_decode(data, bytes, &m) != FSDP_OK)
        return;
    fsdp_hosts_encode(&m, &again);
    hosts_require(again.len == bytes && memcmp(again.data, data, bytes) == 0);
    fsdp_str_fini(&again);
    fsdp_hosts_message_fini(&m);
}

static void read_as_plan(const uint8_t *data, size_t bytes)
{
    fsdp_rank_plan plan;
    if (fsdp_plan_decode(data, bytes, &plan) != FSDP_OK)
        return;
    hosts_require(plan.share.first_rank < plan.share.world_size && plan.launch.command[0]);
    fsdp_plan_fini(&plan);
}

static void read_as_line(const uint8_t *data, size_t bytes)
{
    char **words;
    size_t n;
    char *line = fsdp_strndup((const char *)data, bytes);
    const char *const lines[] = {line};
    hosts_require(line);
    if (fsdp_mpi_split(lines, 1, &words, &n) == FSDP_OK) {
        hosts_require(n > 0);
        fsdp_names_free(words, n);
    }
    fsdp_free(line);
}

/* No input authenticates, since the nonce of the launcher is random. */
static void send_to_launcher(const uint8_t *data, size_t bytes)
{
    fsdp_job_secret secret;
    fsdp_link link;
    fsdp_hosts_message m;
    bool taken = false;
    int ends[2];
    if (fsdp_job_secret_of_text("a secret of this fuzzer", &secret) != FSDP_OK)
        return; /* built without nettle */
    hosts_require(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    hosts_require(send(ends[1], data, bytes, MSG_DONTWAIT) == (ssize_t)bytes);
    hosts_require(fsdp_link_init(&link, ends[0], true, &secret) == FSDP_OK);
    fsdp_status status = fsdp_link_pump(&link);
    if (status == FSDP_OK)
        status = fsdp_link_take(&link, &m, &taken);
    hosts_require(!taken && link.stage != FSDP_LINK_OPEN);
    fsdp_link_close(&link);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    read_as_message(data, bytes);
    read_as_plan(data, bytes);
    read_as_line(data, bytes);
    if (bytes)
        send_to_launcher(data, bytes);
    return 0;
}
