/* The CPU quota and the memory limit of cgroups, from trees of files as found on hosts and in
 * containers. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/cpus.h"
#include "tests/test.h"

/* Write root/path, and create the folders above it. */
static void write_file(fsdp_test *t, const char *root, const char *path, const char *text)
{
    char file[512];
    snprintf(file, sizeof file, "%s/%s", root, path);
    for (char *at = file + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(file, 0777);
    }
    FILE *f = fopen(file, "w");
    ASSERT(f);
    ASSERT(fputs(text, f) >= 0 && fclose(f) == 0);
}

typedef struct file {
    const char *path, *text;
} file;

typedef struct tree {
    const char *name;
    file files[6];
    int quota;
} tree;

#define CGROUP "proc/self/cgroup"
#define SYS "sys/fs/cgroup/"

static const tree trees[] = {
    {"nothing", {{"proc/other", ""}}, 0},
    {"version 2", {{CGROUP, "0::/a/b\n"}, {SYS "a/b/cpu.max", "200000 100000\n"}}, 2},
    {"no limit", {{CGROUP, "0::/a/b\n"}, {SYS "a/b/cpu.max", "max 100000\n"}}, 0},
    {"a part of a processor", {{CGROUP, "0::/a\n"}, {SYS "a/cpu.max", "20000 100000\n"}}, 1},
    {"two and a half", {{CGROUP, "0::/a\n"}, {SYS "a/cpu.max", "125000 50000\n"}}, 3},
    {"a smaller limit above",
     {{CGROUP, "0::/a/b/c\n"},
      {SYS "a/b/c/cpu.max", "800000 100000\n"},
      {SYS "a/b/cpu.max", "max 100000\n"},
      {SYS "a/cpu.max", "300000 100000\n"}},
     3},
    {"another cgroup's limit",
     {{CGROUP, "0::/a\n"},
      {SYS "a/cpu.max", "400000 100000\n"},
      {SYS "b/cpu.max", "100000 100000\n"}},
     4},
    /* A container's namespace shows its own cgroup as the root. */
    {"a container", {{CGROUP, "0::/\n"}, {SYS "cpu.max", "150000 100000\n"}}, 2},
    {"the host's path in a container",
     {{CGROUP, "0::/docker/0123\n"}, {SYS "cpu.max", "600000 100000\n"}},
     6},
    {"outside of the namespace",
     {{CGROUP, "0::/../other\n"},
      {SYS "cpu.max", "500000 100000\n"},
      {"sys/fs/other/cpu.max", "1 1"}},
     5},
    {"version 1",
     {{CGROUP, "9:memory:/m\n4:cpu,cpuacct:/a/b\n1:name=systemd:/s\n"},
      {SYS "cpu,cpuacct/a/b/cpu.cfs_quota_us", "350000\n"},
      {SYS "cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n"}},
     4},
    {"version 1 without a limit",
     {{CGROUP, "4:cpu:/a\n"},
      {SYS "cpu/a/cpu.cfs_quota_us", "-1\n"},
      {SYS "cpu/a/cpu.cfs_period_us", "100000\n"}},
     0},
    {"version 1, limited above",
     {{CGROUP, "4:cpuacct,cpu:/a/b\n"},
      {SYS "cpu/a/b/cpu.cfs_quota_us", "-1\n"},
      {SYS "cpu/a/b/cpu.cfs_period_us", "100000\n"},
      {SYS "cpu/cpu.cfs_quota_us", "700000\n"},
      {SYS "cpu/cpu.cfs_period_us", "100000\n"}},
     7},
    {"a controller that begins so",
     {{CGROUP, "4:cpuset:/a\n"},
      {SYS "cpu/a/cpu.cfs_quota_us", "100000\n"},
      {SYS "cpu/a/cpu.cfs_period_us", "100000\n"}},
     0},
    {"both",
     {{CGROUP, "1:cpu:/a\n0::/b\n"},
      {SYS "cpu/a/cpu.cfs_quota_us", "300000\n"},
      {SYS "cpu/a/cpu.cfs_period_us", "100000\n"},
      {SYS "unified/b/cpu.max", "200000 100000\n"}},
     2},
    {"what is no number", {{CGROUP, "0::/a\nno colons\n"}, {SYS "a/cpu.max", "some of it\n"}}, 0},
    {"a period of 0", {{CGROUP, "0::/a\n"}, {SYS "a/cpu.max", "100000 0\n"}}, 0},
};

TEST(the_smallest_quota_counts)
{
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        char root[300];
        snprintf(root, sizeof root, "%s/%zu", fsdp_test_dir(t), i);
        mkdir(root, 0777);
        for (const file *f = trees[i].files; f->path; f++) {
            write_file(t, root, f->path, f->text);
            CHECK_HERE();
        }
        if (fsdp_cpu_quota(root) != trees[i].quota)
            FAIL("%s: %d, not %d", trees[i].name, fsdp_cpu_quota(root), trees[i].quota);
    }
}

static const struct memory_tree {
    const char *name;
    file files[4];
    int64_t limit;
} memory_trees[] = {
    {"nothing", {{"proc/other", ""}}, 0},
    {"version 2, and a smaller limit above",
     {{CGROUP, "0::/a/b\n"},
      {SYS "a/b/memory.max", "8589934592\n"},
      {SYS "a/memory.max", "2147483648\n"}},
     2147483648},
    {"no limit", {{CGROUP, "0::/a\n"}, {SYS "a/memory.max", "max\n"}}, 0},
    {"version 1",
     {{CGROUP, "4:memory:/a\n2:cpu:/b\n"}, {SYS "memory/a/memory.limit_in_bytes", "1073741824\n"}},
     1073741824},
    {"version 1 without a limit",
     {{CGROUP, "4:memory:/a\n"}, {SYS "memory/memory.limit_in_bytes", "9223372036854771712\n"}},
     0},
    {"a CPU quota is no memory limit", {{CGROUP, "0::/a\n"}, {SYS "a/cpu.max", "1 1\n"}}, 0},
    {"what is no number", {{CGROUP, "0::/a\n"}, {SYS "a/memory.max", "12 bytes\n"}}, 0},
};

TEST(the_smallest_memory_limit_counts)
{
    for (size_t i = 0; i < sizeof memory_trees / sizeof *memory_trees; i++) {
        char root[300];
        snprintf(root, sizeof root, "%s/memory%zu", fsdp_test_dir(t), i);
        mkdir(root, 0777);
        for (const file *f = memory_trees[i].files; f->path; f++) {
            write_file(t, root, f->path, f->text);
            CHECK_HERE();
        }
        if (fsdp_memory_quota(root) != memory_trees[i].limit)
            FAIL("%s: %lld, not %lld", memory_trees[i].name, (long long)fsdp_memory_quota(root),
                 (long long)memory_trees[i].limit);
    }
}

TEST(this_process_has_a_processor)
{
    ASSERT(fsdp_available_cpus() >= 1);
}

TEST(more_than_1024_processors_are_counted)
{
    fsdp_cpu_mask mask = {.words = {[0] = 5, [100] = 1, [127] = UINT64_C(1) << 63}};
    cpu_set_t allowed;
    ASSERT_INT(fsdp_cpu_mask_count(&mask), 4);
    fsdp_cpu_mask_get(&mask);
    ASSERT(sched_getaffinity(0, sizeof allowed, &allowed) == 0); /* on hosts of tests */
    ASSERT_INT(fsdp_cpu_mask_count(&mask), CPU_COUNT(&allowed));
}
