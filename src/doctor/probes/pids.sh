# Tries to start DOCTOR_PIDS processes, and says how many there were at most. Only builtins after the first.
mkfifo /tmp/doctor-clock && exec {clock}<>/tmp/doctor-clock
{ for ((i = 0; i < DOCTOR_PIDS; i++)); do sleep 6 & done; } >/dev/null 2>&1 &
spawner=$!
most=0
# Where it may not start more, bash itself tries again and again: it is not waited for.
for ((i = 0; i < 25; i++)); do
    read -r -t 0.1 -u "$clock"
    running=(/proc/[0-9]*)
    if ((${#running[@]} > most)); then most=${#running[@]}; fi
    [[ -d /proc/$spawner ]] || break
done
echo "$most"
