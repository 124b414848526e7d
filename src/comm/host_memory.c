/* Reads the available memory from /proc/meminfo, sysinfo(2) and cgroup v2. */
#include "src/comm/host_memory.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <fsdp/base.h>

enum {
    FILE_BYTES = 8192 /* enough for memory.stat, the longest file */
};

static bool read_file(const char *path, char *text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, FILE_BYTES - 1);
    close(fd);
    text[got < 0 ? 0 : got] = 0;
    return got > 0;
}

/* Find the line that begins with `name`. Return the number after the name, multiplied by `unit`.
 * Return 0 if there is no such line. */
static size_t field_bytes(const char *text, const char *name, size_t unit)
{
    size_t length = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0)
            return (size_t)strtoull(line + length, NULL, 10) * unit;
    }
    return 0;
}

static size_t host_available(void)
{
    char text[FILE_BYTES];
    struct sysinfo info;
    if (read_file("/proc/meminfo", text) && strstr(text, "MemAvailable:"))
        return field_bytes(text, "MemAvailable:", 1024) + field_bytes(text, "SwapFree:", 1024);
    if (sysinfo(&info) == 0) /* sysinfo() does not report the page cache, so it is not counted */
        return (size_t)(info.freeram + info.bufferram + info.freeswap) * info.mem_unit;
    return SIZE_MAX;
}

/* memory.current includes the page cache. The kernel can reclaim the cache, so the cache is not
 * counted as used. */
static size_t cgroup_available(void)
{
    char text[FILE_BYTES];
    if (!read_file("/sys/fs/cgroup/memory.max", text) || strncmp(text, "max", 3) == 0)
        return SIZE_MAX;
    size_t limit = (size_t)strtoull(text, NULL, 10);
    if (!read_file("/sys/fs/cgroup/memory.current", text))
        return SIZE_MAX;
    size_t used = (size_t)strtoull(text, NULL, 10), cache = 0;
    if (read_file("/sys/fs/cgroup/memory.stat", text))
        cache = field_bytes(text, "inactive_file ", 1) + field_bytes(text, "active_file ", 1);
    used -= cache < used ? cache : used;
    return used < limit ? limit - used : 0;
}

size_t fsdp_host_memory_available(void)
{
    size_t host = host_available(), cgroup = cgroup_available();
    return host < cgroup ? host : cgroup;
}
