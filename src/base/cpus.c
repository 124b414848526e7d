/* Reads the CPU quota and the memory limit of this process from its cgroups. A container that may
 * use 2 of a host's 64 CPUs usually has all 64 in its affinity mask. Only its quota limits the
 * container: the CPU time that all its threads together may use in each period. If the container
 * started 64 threads, they would mostly wait for each other.
 *
 * /proc/self/cgroup has a line "ID:CONTROLLERS:PATH" for each hierarchy of cgroups. CONTROLLERS is
 * empty in the line of cgroup version 2. The limits of a cgroup's ancestors also apply to the
 * cgroup. A container often sees only its own cgroup, mounted as the root of the hierarchy, while
 * PATH is still the path on the host. So a folder of PATH that does not exist is skipped, and the
 * search ends at the mount point. */
#include "src/base/cpus.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"

/* A limit is a number of processors, or a number of bytes of memory. no_limit, or any larger
 * number, means that there is no limit. If memory has no limit, cgroup version 1 gives a very large
 * number of bytes, which is above no_limit. */
static const double no_limit = 4e18;
static const double most_cpus = 1e9; /* a larger quota counts as no limit */

/* Read the first line of a file, without the newline. The path of the file consists of `root`,
 * `dir`, `path`, "/" and `name`, in this order. */
static bool read_line(const char *root, const char *dir, const char *path, const char *name,
                      char *line, int size)
{
    char file[PATH_MAX];
    const int length = snprintf(file, sizeof file, "%s%s%s/%s", root, dir, path, name);
    FILE *f = length > 0 && length < (int)sizeof file ? fopen(file, "re") : NULL;
    if (!f)
        return false;
    const bool read = fgets(line, size, f) != NULL;
    fclose(f);
    if (read)
        line[strcspn(line, "\n")] = 0;
    return read;
}

static double cpus_of_quota(double quota, double period)
{
    return quota > 0.0 && period > 0.0 ? quota / period : no_limit;
}

/* Return the CPU limit of a cgroup of version 2. Its file cpu.max contains "QUOTA PERIOD", both in
 * microseconds, or "max PERIOD" if there is no limit. */
static double limit_2(const char *root, const char *dir, const char *path)
{
    char line[128];
    double quota, period;
    if (!read_line(root, dir, path, "cpu.max", line, sizeof line) ||
        sscanf(line, "%lf %lf", &quota, &period) != 2)
        return no_limit;
    return cpus_of_quota(quota, period);
}

/* Return the CPU limit of a cgroup of version 1. Its file cpu.cfs_quota_us contains -1 if there is
 * no limit. */
static double limit_1(const char *root, const char *dir, const char *path)
{
    char quota[128], period[128];
    if (!read_line(root, dir, path, "cpu.cfs_quota_us", quota, sizeof quota) ||
        !read_line(root, dir, path, "cpu.cfs_period_us", period, sizeof period))
        return no_limit;
    return cpus_of_quota(strtod(quota, NULL), strtod(period, NULL));
}

/* Return the memory limit of a cgroup of version 2. Its file memory.max contains a number of bytes,
 * or "max" if there is no limit. */
static double memory_2(const char *root, const char *dir, const char *path)
{
    char line[128], *end;
    if (!read_line(root, dir, path, "memory.max", line, sizeof line))
        return no_limit;
    const double bytes = strtod(line, &end);
    return end == line || *end ? no_limit : bytes;
}

static double memory_1(const char *root, const char *dir, const char *path)
{
    char line[128], *end;
    if (!read_line(root, dir, path, "memory.limit_in_bytes", line, sizeof line))
        return no_limit;
    const double bytes = strtod(line, &end);
    return end == line || *end || bytes <= 0.0 ? no_limit : bytes;
}

typedef double limit_fn(const char *root, const char *dir, const char *path);

/* Return the smallest limit of the cgroup `path` and its ancestors. The hierarchy of cgroups is
 * mounted at `dir`. This function truncates `path`. */
static double smallest_limit(limit_fn *limit, const char *root, const char *dir, char *path)
{
    double least = no_limit;
    for (char *slash = path + strlen(path);; slash = strrchr(path, '/')) {
        if (slash)
            *slash = 0;
        const double here = limit(root, dir, slash ? path : "");
        least = here < least ? here : least;
        if (!slash || slash == path)
            return least;
    }
}

static bool has_controller(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
    return false;
}

/* A resource that cgroups limit. The field limit_2 reads the limit of a cgroup of version 2, and
 * limit_1 that of a cgroup of version 1. This file looks for a hierarchy of cgroups only at its
 * usual mount points. For version 1, they are in `mounts_1` (a list that ends with NULL). For
 * version 2, they are in the array mounts_2 below. */
typedef struct resource {
    const char *controller; /* the name of the resource's controller in version 1 */
    limit_fn *limit_2, *limit_1;
    const char *const *mounts_1;
} resource;

static const char *const mounts_2[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", NULL};
static const char *const cpu_mounts[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct",
                                         "/sys/fs/cgroup/cpuacct,cpu", NULL};
static const char *const memory_mounts[] = {"/sys/fs/cgroup/memory", NULL};
static const resource cpu = {"cpu", limit_2, limit_1, cpu_mounts};
static const resource memory = {"memory", memory_2, memory_1, memory_mounts};

/* Return the smallest limit that applies to the cgroup `path`. `controllers` and `path` come from
 * one line of /proc/self/cgroup. */
static double limit_of_line(const resource *r, const char *root, const char *controllers,
                            const char *path)
{
    const bool is_2 = !*controllers;
    double least = no_limit;
    if (!is_2 && !has_controller(controllers, r->controller))
        return least;
    for (const char *const *mount = is_2 ? mounts_2 : r->mounts_1; *mount; mount++) {
        char copy[PATH_MAX];
        /* A path with "/.." belongs to a cgroup outside this namespace. Read the limit at the root
         * of the mount instead. */
        snprintf(copy, sizeof copy, "%s", strstr(path, "/..") ? "" : path);
        const double limit = smallest_limit(is_2 ? r->limit_2 : r->limit_1, root, *mount, copy);
        least = limit < least ? limit : least;
    }
    return least;
}

/* Return the smallest limit of all lines of /proc/self/cgroup. */
static double limit_of_process(const resource *r, const char *root)
{
    char file[PATH_MAX], line[PATH_MAX];
    double least = no_limit;
    const int length = snprintf(file, sizeof file, "%s/proc/self/cgroup", root);
    FILE *f = length > 0 && length < (int)sizeof file ? fopen(file, "re") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        const double limit = limit_of_line(r, root, controllers + 1, path);
        least = limit < least ? limit : least;
    }
    if (f)
        fclose(f);
    return least;
}

static int rounded_up(double cpus)
{
    const int whole = (int)cpus;
    return whole + (cpus > whole);
}

int fsdp_cpu_quota(const char *root)
{
    const double least = limit_of_process(&cpu, root);
    return least < most_cpus ? rounded_up(least) : 0;
}

int64_t fsdp_memory_quota(const char *root)
{
    const double least = limit_of_process(&memory, root);
    return least < no_limit ? (int64_t)least : 0;
}

void fsdp_cpu_mask_get(fsdp_cpu_mask *mask)
{
    *mask = (fsdp_cpu_mask){0};
    if (sched_getaffinity(0, sizeof *mask, (cpu_set_t *)(void *)mask) != 0)
        mask->words[0] = 1;
}

int fsdp_cpu_mask_count(const fsdp_cpu_mask *mask)
{
    int count = 0;
    for (size_t i = 0; i < FSDP_LENGTH(mask->words); i++)
        count += __builtin_popcountll(mask->words[i]);
    return count;
}

int fsdp_available_cpus(void)
{
    fsdp_cpu_mask allowed;
    const int quota = fsdp_cpu_quota("");
    fsdp_cpu_mask_get(&allowed);
    int count = fsdp_cpu_mask_count(&allowed);
    if (quota > 0 && quota < count)
        count = quota;
    return count > 0 ? count : 1;
}
