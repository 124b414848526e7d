/* The check of available memory before each allocation of shared memory. */
#include "src/comm/host_memory.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include "src/comm/fd.h"
#include "tests/test.h"

TEST(available_memory_is_between_nothing_and_all_of_it)
{
    struct sysinfo info;
    ASSERT(sysinfo(&info) == 0);
    size_t all = (size_t)(info.totalram + info.totalswap) * info.mem_unit;
    ASSERT(fsdp_host_memory_available() > 0);
    ASSERT(fsdp_host_memory_available() <= all);
}

/* Four times the available memory is refused before any page is allocated. */
TEST(more_than_is_available_is_refused_at_once)
{
    int fd = -1;
    size_t before = fsdp_host_memory_available();
    ASSERT_ERROR(fsdp_memfd_create("test", 4 * before, &fd), FSDP_ERR_NOMEM, "are available");
    ASSERT_INT(fd, -1);
}

TEST(a_memfd_is_whole_and_keeps_its_size)
{
    int fd = -1;
    size_t bytes = 0;
    ASSERT_OK(fsdp_memfd_create("test", 10000, &fd));
    ASSERT_OK(fsdp_memfd_check("test", fd, &bytes));
    ASSERT_INT(bytes, 10000);
    ASSERT(ftruncate(fd, 5000) != 0);
    ASSERT(ftruncate(fd, 20000) != 0);
    close(fd);
}
