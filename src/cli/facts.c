/* Prints facts as text or JSON. Text that is too long for a line is truncated. */
#include "src/cli/facts.h"

#include <stdarg.h>

enum {
    FACT_BYTES = 4096
};

void fsdp_fact_line(fsdp_facts *facts, const char *name, const char *format, ...)
{
    char text[FACT_BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (facts->to)
        fprintf(facts->to, "%s: %s\n", name, text);
    else
        fsdp_json_set_str(facts->root, name, text);
}

void fsdp_facts_section(fsdp_facts *facts, const char *name, const char *note)
{
    if (facts->to) {
        fprintf(facts->to, "%s:%s%s\n", name, note ? " " : "", note ? note : "");
        return;
    }
    facts->section = fsdp_json_set_object(facts->root, name);
    if (note)
        fsdp_json_set_str(facts->section, "note", note);
}

void fsdp_fact(fsdp_facts *facts, const char *name, const char *format, ...)
{
    char text[FACT_BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (facts->to)
        fprintf(facts->to, "  %-13s %s\n", name, text);
    else
        fsdp_json_set_str(facts->section, name, text);
}

void fsdp_fact_missing(fsdp_facts *facts, const char *name, const char *text)
{
    if (facts->to)
        fprintf(facts->to, "  %-13s %s\n", name, text);
    else
        fsdp_json_set_str(facts->section, name, NULL);
}
