/* Reads /proc, /sys and the environment. If a file cannot be read, its line is left out. */
#include "src/cli/common/machine.h"

#include <dirent.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/cpus.h"
#include "src/base/program.h"
#include "src/base/str.h"
#include "src/comm/task.h"
#include "src/report/human.h"

enum {
    LINE_BYTES = 512
};

/* In the file `path`, find the first line that begins with `key`, such as "MemAvailable:", and read
 * its value. The value begins after the spaces, tabs and colons that follow the key. It is stored
 * without quotes and newline. If `key` is "", the value is the first line of the file. */
static bool read_value(const char *path, const char *key, char value[LINE_BYTES])
{
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(value, LINE_BYTES, file))
        found = strncmp(value, key, strlen(key)) == 0;
    if (file)
        fclose(file);
    if (!found)
        return false;
    char *begin = value + strlen(key);
    begin += strspn(begin, " \t:=\"");
    memmove(value, begin, strlen(begin) + 1);
    value[strcspn(value, "\"\n")] = 0;
    return true;
}

/* Add the number of bytes in the line of /proc/meminfo that begins with `key`. */
static void add_meminfo(fsdp_facts *to, const char *name, const char *key)
{
    char value[LINE_BYTES];
    if (read_value("/proc/meminfo", key, value))
        fsdp_fact(to, name, "%s", fsdp_human_bytes(strtoll(value, NULL, 10) * 1024).text);
}

/* Add the processors that this process may use, from its affinity mask, such as "0-7,16". */
static void add_affinity(fsdp_facts *to)
{
    char value[LINE_BYTES];
    if (read_value("/proc/self/status", "Cpus_allowed_list", value))
        fsdp_fact(to, "affinity", "%s of %ld", value, sysconf(_SC_NPROCESSORS_ONLN));
}

static void add_numa_nodes(fsdp_facts *to)
{
    char path[PATH_MAX], cpus[LINE_BYTES], memory[LINE_BYTES], name[32], key[64];
    for (int node = 0; node < 1024; node++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        if (!read_value(path, "", cpus))
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
        snprintf(key, sizeof key, "Node %d MemTotal", node);
        snprintf(name, sizeof name, "NUMA node %d", node);
        if (read_value(path, key, memory))
            fsdp_fact(to, name, "processors %s, %s", *cpus ? cpus : "none",
                      fsdp_human_bytes(strtoll(memory, NULL, 10) * 1024).text);
        else
            fsdp_fact(to, name, "processors %s", *cpus ? cpus : "none");
    }
}

static void add_file_system(fsdp_facts *to, const char *name, const char *path)
{
    struct statvfs fs;
    if (statvfs(path, &fs) == 0)
        fsdp_fact(to, name, "%s, %s free",
                  fsdp_human_bytes((int64_t)(fs.f_blocks * fs.f_frsize)).text,
                  fsdp_human_bytes((int64_t)(fs.f_bavail * fs.f_frsize)).text);
}

static void add_system(fsdp_facts *to)
{
    char value[LINE_BYTES];
    struct utsname system;
    if (uname(&system) == 0)
        fsdp_fact(to, "system", "%s %s %s", system.sysname, system.release, system.machine);
    if (read_value("/etc/os-release", "PRETTY_NAME", value))
        fsdp_fact(to, "distribution", "%s", value);
    fsdp_fact(to, "C library", "glibc %s", gnu_get_libc_version());
}

void fsdp_add_machine(fsdp_facts *to)
{
    char value[LINE_BYTES];
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    const int quota = fsdp_cpu_quota("");
    const int64_t limit = fsdp_memory_quota("");
    fsdp_facts_section(to, "machine", NULL);
    fsdp_fact(to, "processors", "%d that this process may use", fsdp_available_cpus());
    if (read_value("/proc/cpuinfo", "model name", value))
        fsdp_fact(to, "model", "%s", value);
    add_affinity(to);
    if (quota)
        fsdp_fact(to, "CPU quota", "%d processors, of the container or cgroup", quota);
    else
        fsdp_fact_missing(to, "CPU quota", "none");
    add_numa_nodes(to);
    fsdp_fact(to, "memory", "%s", fsdp_human_bytes(pages * page_bytes).text);
    add_meminfo(to, "available", "MemAvailable");
    add_meminfo(to, "swap", "SwapTotal");
    if (limit)
        fsdp_fact(to, "memory limit", "%s, of the container or cgroup",
                  fsdp_human_bytes(limit).text);
    else
        fsdp_fact_missing(to, "memory limit", "none");
    add_file_system(to, "/dev/shm", "/dev/shm");
    if (read_value("/sys/kernel/mm/transparent_hugepage/enabled", "", value))
        fsdp_fact(to, "huge pages", "%s", value);
    add_system(to);
}

static void add_limit(fsdp_facts *to, const char *name, int resource, bool is_bytes)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        fsdp_fact_missing(to, name, "none");
    else if (is_bytes)
        fsdp_fact(to, name, "%s", fsdp_human_bytes((int64_t)limit.rlim_cur).text);
    else
        fsdp_fact(to, name, "%llu", (unsigned long long)limit.rlim_cur);
}

static void add_limits(fsdp_facts *to)
{
    fsdp_facts_section(to, "limits", NULL);
    add_limit(to, "open files", RLIMIT_NOFILE, false);
    add_limit(to, "processes", RLIMIT_NPROC, false);
    add_limit(to, "address space", RLIMIT_AS, true);
    add_limit(to, "locked memory", RLIMIT_MEMLOCK, true);
    add_limit(to, "stack", RLIMIT_STACK, true);
    add_limit(to, "file size", RLIMIT_FSIZE, true);
    add_limit(to, "core dumps", RLIMIT_CORE, true);
}

/* ---- the job ---- */

static void add_launcher(fsdp_facts *to)
{
    const fsdp_start start = fsdp_find_start();
    if (!start.launcher) {
        fsdp_fact_missing(to, "started by", "no launcher");
        return;
    }
    fsdp_fact(to, "started by", "%s", start.launcher);
    fsdp_fact(to, "seen from", "%s", start.variable);
    fsdp_fact(to, "rank", "%s of %s", start.rank_text ? start.rank_text : "?",
              start.world_size_text ? start.world_size_text : "?");
}

static bool is_in_path(const char *name)
{
    char *path = fsdp_program_find(name);
    fsdp_free(path);
    return path != NULL;
}

void fsdp_add_job(fsdp_facts *to)
{
    static const char *const programs[] = {"torchrun", "accelerate", "mpirun", "srun"};
    const char *hosts = getenv("SLURM_JOB_NUM_NODES"), *tasks = getenv("SLURM_NTASKS");
    char found[128] = "";
    fsdp_text text = {found, sizeof found};
    fsdp_facts_section(to, "job", NULL);
    add_launcher(to);
    if (hosts)
        fsdp_fact(to, "Slurm", "%s hosts, %s tasks", hosts, tasks ? tasks : "1");
    else
        fsdp_fact_missing(to, "Slurm", "no job");
    for (size_t i = 0; i < FSDP_LENGTH(programs); i++)
        if (is_in_path(programs[i]))
            fsdp_text_printf(&text, "%s%s", *found ? ", " : "", programs[i]);
    fsdp_fact(to, "launchers", "%s", *found ? found : "only fsdp launch");
    add_limits(to);
}
