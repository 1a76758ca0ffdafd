/**
 * Shows how many units each limit would still admit, one row a limit. The id of a row is the limit's name.
 *
 * @param {HTMLTableSectionElement} body
 * @param {{name: string, remaining: number, limit: number}[]} limits
 */
export function showLimits(body, limits) {
  body.replaceChildren(...limits.map(({ name, remaining, limit }) => {
    const row = document.createElement('tr');
    row.innerHTML = '<th></th><td></td><td><progress></progress></td>';
    row.id = name;
    row.cells[0].textContent = name;
    row.cells[1].textContent = `${remaining} of ${limit}`;
    Object.assign(row.querySelector('progress'), { value: remaining, max: limit });
    return row;
  }));
}
