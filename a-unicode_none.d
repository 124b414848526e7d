unicode_none.o: src/text/unicode_none.c src/text/unicode.h \
 include/fsdp/base.h src/base/assert.h
src/text/unicode.h:
include/fsdp/base.h:
src/base/assert.h:
