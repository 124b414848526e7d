/* Reports, with the source line of an instruction. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

namespace emu
{
/* Run addr2line and return its lines, the innermost function first. */
static std::string ask_addr2line(const char *program, uintptr_t offset)
{
    char command[600], line[512];
    std::string text;
    snprintf(command, sizeof command, "addr2line -s -i -e '%s' %lx 2>/dev/null", program,
             (unsigned long)offset);
    FILE *f = popen(command, "r");
    for (int i = 0; f && i < 5 && fgets(line, sizeof line, f); i++) {
        line[strcspn(line, " \n")] = 0;
        text += std::string(i ? " < " : " at ") + line;
    }
    if (f)
        pclose(f);
    return text;
}

std::string source_line(const void *pc)
{
    Dl_info object;
    if (!pc || !dladdr(pc, &object))
        return "";
    /* The name of the program in Dl_info may be relative to a folder that was left. */
    char program[300] = "";
    if (strstr(object.dli_fname, ".so"))
        snprintf(program, sizeof program, "%s", object.dli_fname);
    else if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return "";
    return ask_addr2line(program, (uintptr_t)pc - 1 - (uintptr_t)object.dli_fbase);
}

void report(const char *format, ...)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    va_list arguments;
    pthread_mutex_lock(&lock);
    fflush(stdout);
    fprintf(stderr, "== emulator: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    if (getenv("EMU_ABORT"))
        abort();
    if (!getenv("EMU_CONTINUE"))
        _Exit(66);
    pthread_mutex_unlock(&lock);
}
} // namespace emu
