char_class_data.o: src/text/char_class_data.c src/text/char_class.h \
 include/fsdp/base.h
src/text/char_class.h:
include/fsdp/base.h:
