/* Prints log lines. FSDP_LOG, which is parsed once, gives the log level of each component. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"

enum {
    MAX_COMPONENTS = 16,
    COMPONENT_BYTES = 24
};

static pthread_once_t parsed = PTHREAD_ONCE_INIT;
static fsdp_log_level base_level = FSDP_LOG_WARN;
static struct {
    char name[COMPONENT_BYTES];
    fsdp_log_level level;
} components[MAX_COMPONENTS];
static int n_components;

static bool level_from_name(const char *name, size_t length, fsdp_log_level *level)
{
    static const char *const names[] = {"off", "warn", "info", "debug", "trace"};
    for (int i = 0; i < 5; i++) {
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) {
            *level = (fsdp_log_level)i;
            return true;
        }
    }
    return false;
}

static void parse_item(const char *item, size_t length)
{
    const char *colon = memchr(item, ':', length);
    if (!colon) {
        (void)level_from_name(item, length, &base_level);
        return;
    }
    size_t name_length = (size_t)(colon - item);
    fsdp_log_level level;
    if (n_components == MAX_COMPONENTS || name_length >= COMPONENT_BYTES ||
        !level_from_name(colon + 1, length - name_length - 1, &level))
        return;
    memcpy(components[n_components].name, item, name_length);
    components[n_components++].level = level;
}

static void parse_environment(void)
{
    const char *spec = getenv("FSDP_LOG");
    while (spec && *spec) {
        size_t length = strcspn(spec, ",");
        parse_item(spec, length);
        spec += length + (spec[length] == ',');
    }
}

bool fsdp_log_enabled(const char *component, fsdp_log_level level)
{
    pthread_once(&parsed, parse_environment);
    for (int i = 0; i < n_components; i++)
        if (strcmp(components[i].name, component) == 0)
            return level <= components[i].level;
    return level <= base_level;
}

void fsdp_log(const char *component, fsdp_log_level level, int rank, int world_size,
              const char *format, ...)
{
    if (!fsdp_log_enabled(component, level) || (level == FSDP_LOG_INFO && rank > 0))
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (rank < 0)
        fprintf(stderr, "%s: %s\n", component, line);
    else
        fprintf(stderr, "[%d/%d] %s: %s\n", rank, world_size, component, line);
}
