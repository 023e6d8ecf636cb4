# Takes DOCTOR_BYTES of memory, and no more: where no limit holds, the host must live on.
LC_ALL=C
x=0123456789abcdef
while ((${#x} < DOCTOR_BYTES)); do x=$x$x; done
echo survived
