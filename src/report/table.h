/* A table of aligned columns for the summary at the end of a run, by display width (UTF-8). */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

typedef enum fsdp_table_align {
    FSDP_TABLE_LEFT,
    FSDP_TABLE_RIGHT,
} fsdp_table_align;

typedef enum fsdp_table_style {
    FSDP_TABLE_AUTO,  /* boxes where the environment asks for UTF-8, otherwise ASCII */
    FSDP_TABLE_BOX,   /* lines from Unicode's box drawing */
    FSDP_TABLE_ASCII, /* + - | */
} fsdp_table_style;

typedef struct fsdp_table fsdp_table;

FSDP_MUST_CHECK fsdp_status fsdp_table_create(size_t columns, fsdp_table **table);
void fsdp_table_destroy(fsdp_table *table); /* accepts NULL */

/* Heading and alignment of column `i`; LEFT without a heading by default. */
void fsdp_table_column(fsdp_table *table, size_t i, const char *heading, fsdp_table_align align);

/* A new row of empty cells; then its cells from left to right. A failed allocation and a row with
 * too many cells are remembered and returned by print, so that building a table is plain calls. */
void fsdp_table_row(fsdp_table *table);
FSDP_PRINTF(2, 3) void fsdp_table_cell(fsdp_table *table, const char *format, ...);
/* A rule between the rows before and after. */
void fsdp_table_rule(fsdp_table *table);

/* Line breaks and control characters within cells are shown as spaces. FSDP_ERR_IO if `file` does
 * not take it. */
FSDP_MUST_CHECK fsdp_status fsdp_table_print(const fsdp_table *table, FILE *file,
                                             fsdp_table_style style);
