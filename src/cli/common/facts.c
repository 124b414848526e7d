/* Prints facts as text or JSON. Text that is too long for a line is truncated. */
#include "src/cli/common/facts.h"

#include <stdarg.h>

enum {
    FACT_BYTES = 4096
};

/* Print a fact on a line of its own, or as one of the facts of a section. */
FSDP_PRINTF(4, 0)
static void put_fact(fsdp_facts *facts, bool in_section, const char *name, const char *format,
                     va_list values)
{
    char text[FACT_BYTES];
    vsnprintf(text, sizeof text, format, values);
    if (facts->to)
        fprintf(facts->to, in_section ? "  %-13s %s\n" : "%s: %s\n", name, text);
    else
        fsdp_json_set_any_str(in_section ? facts->section : facts->root, name, text);
}

void fsdp_fact_line(fsdp_facts *facts, const char *name, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    put_fact(facts, false, name, format, values);
    va_end(values);
}

void fsdp_facts_section(fsdp_facts *facts, const char *name, const char *note)
{
    if (facts->to) {
        fprintf(facts->to, "%s:%s%s\n", name, note ? " " : "", note ? note : "");
        return;
    }
    facts->section = fsdp_json_set_object(facts->root, name);
    if (note)
        fsdp_json_set_any_str(facts->section, "note", note);
}

void fsdp_fact(fsdp_facts *facts, const char *name, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    put_fact(facts, true, name, format, values);
    va_end(values);
}

void fsdp_fact_missing(fsdp_facts *facts, const char *name, const char *text)
{
    if (facts->to)
        fprintf(facts->to, "  %-13s %s\n", name, text);
    else
        fsdp_json_set_str(facts->section, name, NULL);
}
