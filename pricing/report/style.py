"""The style sheet of a run's page. One accent for prices, one for what was observed; washes for what went wrong.

Every colour is a variable with a light and a dark value; text on its background has a contrast of at least 4.5 to 1 in
both, which a test computes.
"""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{--page:#fbfbfa;--card:#fff;--ink:#1b1c1e;--soft:#5a5e66;--rule:#d9dbdf;--lane:#eef0f3;
--price:#1d5fbf;--observed:#b04a00;--budget:#4a4f57;--refused:#8a5a00;--failed:#b3201a;--good:#1c7040;
--refused-wash:#fdf3dc;--failed-wash:#fde9e7;--good-wash:#e6f4ea;--over:#f6eeec;--notice-wash:#e9f0fb;
--part-outputs:#0b7285;--part-model:#1d5fbf;--part-rows:#6a55c2;--part-segments:#91409f;--part-safety:#666d78;--on-part:#fff}
@media (prefers-color-scheme:dark){:root{--page:#141517;--card:#1d1f22;--ink:#eceef1;--soft:#a5abb5;--rule:#383b41;
--lane:#26292e;--price:#82b6ff;--observed:#ffad66;--budget:#b9bfc9;--refused:#f2c14e;--failed:#ff8d85;--good:#72d295;
--refused-wash:#34290f;--failed-wash:#3a1c1a;--good-wash:#15301f;--over:#261b1b;--notice-wash:#1b2a41;
--part-outputs:#5cc8d8;--part-model:#82b6ff;--part-rows:#b3a8f5;--part-segments:#dfa3ea;--part-safety:#a5abb5;--on-part:#111}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",
Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 4px}h2{font-size:1.2rem;margin:38px 0 10px}
h3{font-size:1.02rem;margin:18px 0 6px}.card h3{font-size:.95rem;margin:12px 0 2px}
header p,footer,.source{color:var(--soft)}header p{margin:0}
footer{margin-top:38px;font-size:.9rem}.source{font-size:.85rem}
.hidden,.skip:not(:focus){position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);
white-space:nowrap}
.skip:focus{position:fixed;top:8px;left:8px;padding:8px 14px;background:var(--card);color:var(--ink);z-index:2}
:focus-visible{outline:3px solid var(--price);outline-offset:2px}
.findings{list-style:none;margin:0;padding:0;display:grid;gap:10px}
.findings li{display:flex;gap:14px;padding:14px 16px;border-radius:8px;border-left:5px solid var(--price);
background:var(--notice-wash)}
.findings strong{font-size:1.08rem}.findings p{margin:2px 0 0}
.mark{flex:none;width:30px;height:30px;border-radius:50%;background:var(--price);color:var(--page);font-weight:700;
display:grid;place-items:center}
.findings .failed{border-color:var(--failed);background:var(--failed-wash)}.failed .mark{background:var(--failed)}
.findings .refused{border-color:var(--refused);background:var(--refused-wash)}.refused .mark{background:var(--refused)}
.findings .good{border-color:var(--good);background:var(--good-wash)}.good .mark{background:var(--good)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:18px 0 0}
.figures div{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 14px}
.figures dt{color:var(--soft);font-size:.86rem}.figures dd{margin:0;font-size:1.4rem;font-weight:650}
.figures .failed dd{color:var(--failed)}.figures .refused dd{color:var(--refused)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;margin:0 0 6px;padding:0;font-size:.9rem}
.legend svg{width:24px;height:14px;margin-right:6px;vertical-align:-1px}
figure{margin:0;overflow-x:auto}figure svg{display:block;width:100%;min-width:620px;height:auto}
svg text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--ink)}
svg .tick,svg .label{fill:var(--soft)}svg .lane-name{text-anchor:end}
.grid{stroke:var(--rule)}.over{fill:var(--over)}.budget{stroke:var(--budget);stroke-width:2;stroke-dasharray:7 5}
.price{stroke:var(--price);stroke-width:3}path.price{stroke-width:2}.stem{stroke:var(--price);stroke-opacity:.45}
circle.observed{fill:var(--observed)}path.observed{stroke:var(--observed);stroke-width:2}
path.refused{stroke:var(--refused);stroke-width:3;fill:none}path.failed{fill:var(--failed)}
circle.under{fill:none;stroke:var(--failed);stroke-width:2.5}
.lane{fill:var(--lane)}.bound{fill:var(--price)}
.part-outputs{fill:var(--part-outputs)}.part-model{fill:var(--part-model)}.part-rows{fill:var(--part-rows)}
.part-segments{fill:var(--part-segments)}.part-safety{fill:var(--part-safety)}
svg .part-name{fill:var(--on-part);font-size:12px}
.terms{display:grid;gap:2px 18px;margin:8px 0 0;font-size:.9rem}.terms div{display:flex;flex-wrap:wrap;gap:0 8px}
.terms dt{font-weight:600}.terms dd{margin:0;color:var(--soft)}
.card{background:var(--card);border:1px solid var(--rule);border-left:5px solid var(--refused);border-radius:8px;
padding:4px 18px 8px;margin:0 0 14px}.card.failed{border-left-color:var(--failed)}
.card ul{margin:2px 0 10px;padding-left:20px}
details{margin:8px 0}summary{cursor:pointer;font-weight:600;padding:4px 0}
.scroll{overflow:auto;border:1px solid var(--rule);border-radius:8px;background:var(--card)}.tall{max-height:560px}
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:8px 12px;color:var(--soft)}
th,td{padding:5px 10px;text-align:right;white-space:nowrap;border-top:1px solid var(--rule)}
thead th{position:sticky;top:0;background:var(--lane);border-top:0}
th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}
.scroll.tall td:nth-child(11),.scroll.tall th:nth-child(11){text-align:left}
tbody th{font-weight:600}tr.failed{background:var(--failed-wash)}tr.refused{background:var(--refused-wash)}
code{font:.92em ui-monospace,Consolas,monospace}
@media print{.tall{max-height:none}}
""".strip()
